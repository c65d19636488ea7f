//! Instructions that were checked otherwise than by the official evaluation.

use crate::tasks::ifeval::follows;

/// I1, sieval 104: blank paragraphs are left out of the count, yet the nth is taken of all pieces. That
/// is so in the official evaluation, and its verdict is the one to give.
#[test]
fn i1_the_nth_paragraph_is_taken_as_officially() {
    let kwargs = r#"{"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "second"}"#;
    let strictly = |reply| follows("length_constraints:nth_paragraph_first_word", kwargs, reply).0;
    assert!(strictly("First.\n\nSecond."));
    // Three line ends divide as two do.
    assert!(strictly("First.\n\n\nSecond."));
    // The second of three pieces is blank.
    assert!(!strictly("First.\n\n\n\nSecond."));
    // The piece before the first line end is the first.
    assert!(!strictly("\n\nFirst.\n\nSecond."));
    assert!(strictly("\n\nSecond.\n\nThird."));
}

/// I2, LiveBench 468: lines in bold counted as bullets, or kept bullets with bold words from counting.
#[test]
fn i2_bold_lines_are_no_bullets() {
    let bullets = |count: usize, reply: &str| {
        let kwargs = format!("{{\"num_bullets\": {count}}}");
        follows("detectable_format:number_bullet_lists", &kwargs, reply).0
    };
    assert!(bullets(0, "**Bold**\n  **also bold** words"));
    assert!(bullets(2, "**Title**\n* **bold** item\n- **bold** item"));
    // A line in italics begins as a bullet does, and officially counts as one.
    assert!(bullets(1, "*italic*"));
    assert!(bullets(1, "***\n* item"));
}
