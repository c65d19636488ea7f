//! The same `ModelSpec` on candle tensors: small, slow, the oracle of tests. Uses `model`.
