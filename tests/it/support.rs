//! What several test modules need: where the fixtures and the default model are.
