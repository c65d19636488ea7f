//! Text from token ids as they come, never cutting a character in two.

use super::TokenId;
use super::tokenizer::Tokenizer;

/// Turns a stream of token ids into pieces of text whose concatenation is the decoding of the whole
/// stream. Bytes that may still become a character are held back; bytes that cannot become U+FFFD.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    held: Vec<u8>,
}

impl Detokenizer {
    /// A stream at its beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next token and answers with the text that is now certain, which may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: TokenId) -> String {
        self.push_bytes(tokenizer.token_bytes(id).unwrap_or_default())
    }

    /// As `push`, for bytes.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = &self.held[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    let Some(bad) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[bad..];
                }
            }
        }
        self.held = rest.to_vec();
        text
    }

    /// Bytes that wait for the rest of their character: 0 to 3.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Ends the stream: what is still held can no longer become a character.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_character_comes_whole() {
        let mut stream = Detokenizer::new();
        let euro = "€".as_bytes();
        assert_eq!(stream.push_bytes(&euro[..1]), "");
        assert_eq!(stream.push_bytes(&euro[1..2]), "");
        assert_eq!(stream.held(), 2);
        assert_eq!(stream.push_bytes(&[euro[2], b'a']), "€a");
        assert_eq!(stream.push_bytes(&euro[..2]), "");
        assert_eq!(stream.push_bytes(b"x"), "\u{fffd}x");
        assert_eq!(stream.push_bytes(&[0xf0, 0x9f]), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        /// However bytes are cut into pieces, the text is that of the whole.
        #[test]
        fn pieces_make_the_whole(
            bytes in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(0xe2u8), Just(0x82), Just(0xac), Just(0xf0), Just(0x9f), Just(0xc3), Just(b'a'),
            ], 0..40),
            cuts in prop::collection::vec(1usize..4, 40),
        ) {
            let mut stream = Detokenizer::new();
            let (mut text, mut at) = (String::new(), 0);
            for cut in cuts {
                let end = (at + cut).min(bytes.len());
                text.push_str(&stream.push_bytes(&bytes[at..end]));
                prop_assert!(stream.held() <= 3);
                at = end;
            }
            text.push_str(&stream.push_bytes(&bytes[at..]));
            text.push_str(&stream.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
