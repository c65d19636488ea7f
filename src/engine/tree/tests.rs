//! The tree by itself, on pages that are only numbers.

use super::*;

fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    numbers.into_iter().map(TokenId).collect()
}

/// Puts ids behind what is there of them, on pages from `first` on; answers with the path,
/// pinned, and how many ids were there already.
fn put(tree: &mut PrefixTree, ids: &[TokenId], first: u32) -> (Vec<NodeId>, usize) {
    let mut path = Vec::new();
    let found = tree.resume(None, ids, &mut path, 0);
    let (mut at, mut page) = (found, first);
    let within = at % PAGE_POSITIONS;
    if within > 0 && at < ids.len() {
        let next = ids.len().min(at - within + PAGE_POSITIONS);
        let tail = path.pop().unwrap();
        if tree.claim(tail, within, u64::from(first)) {
            path.push(tree.extend(tail, &ids[at..next], 0));
        } else {
            let copy = tree.insert(None, &path, &ids[at - within..at], PageId(page));
            tree.release(&[tail], 0);
            page += 1;
            assert!(tree.claim(copy, within, u64::from(first)));
            path.push(tree.extend(copy, &ids[at..next], 0));
        }
        at = next;
    }
    while at < ids.len() {
        let next = ids.len().min(at + PAGE_POSITIONS);
        path.push(tree.insert(None, &path, &ids[at..next], PageId(page)));
        (at, page) = (next, page + 1);
    }
    tree.check([path.as_slice()]).unwrap();
    (path, found)
}

fn found(tree: &mut PrefixTree, ids: &[TokenId]) -> usize {
    let mut path = Vec::new();
    let found = tree.resume(None, ids, &mut path, 0);
    tree.release(&path, 0);
    found
}

#[test]
fn prefixes_are_found_to_the_id() {
    let mut tree = PrefixTree::new(100);
    let (path, _) = put(&mut tree, &ids(0..40), 0);
    assert_eq!(tree.page(path[2]), PageId(2));
    assert_eq!(found(&mut tree, &ids(0..40)), 40);
    assert_eq!(found(&mut tree, &ids((0..37).chain([99, 98]))), 37);
    assert_eq!(found(&mut tree, &ids((0..20).chain(50..90))), 20);
    assert_eq!(found(&mut tree, &ids(0..3)), 3);
    assert_eq!(found(&mut tree, &ids(1..9)), 0);
    let mut other = Vec::new();
    assert_eq!(tree.resume(Some(AdapterId(0)), &ids(0..40), &mut other, 0), 0);
}

#[test]
fn a_shared_page_is_appended_to_once_and_then_copied() {
    let mut tree = PrefixTree::new(100);
    let (one, _) = put(&mut tree, &ids(0..20), 0);
    tree.release(&one, 1);
    let (two, shared) = put(&mut tree, &ids(0..24), 10);
    assert_eq!((shared, tree.page(two[1])), (20, PageId(1)), "in place");
    tree.release(&two, 2);
    let (three, shared) = put(&mut tree, &ids((0..20).chain(70..74)), 20);
    assert_eq!((shared, tree.page(three[1])), (20, PageId(20)), "on a copy");
    tree.release(&three, 3);
    for (way, length) in [(ids(0..24), 24), (ids((0..20).chain(70..74)), 24)] {
        assert_eq!(found(&mut tree, &way), length);
    }
}

#[test]
fn the_least_recently_used_leaves_first_and_leaves_before_what_hangs_on_it() {
    let mut tree = PrefixTree::new(100);
    let (old, _) = put(&mut tree, &ids(0..32), 0);
    tree.release(&old, 1);
    let (new, _) = put(&mut tree, &ids((0..16).chain(50..66)), 10);
    tree.release(&new, 2);
    assert_eq!((tree.unpinned(), tree.oldest()), (3, Some(1)));
    assert_eq!(tree.evict(), Some(PageId(1)), "the old end");
    assert_eq!(tree.evict(), Some(PageId(10)), "the new end before the shared beginning");
    let (pinned, shared) = put(&mut tree, &ids(0..16), 20);
    assert_eq!((shared, tree.evict()), (16, None), "it is pinned");
    tree.release(&pinned, 3);
    assert_eq!(tree.evict(), Some(PageId(0)));
    tree.check([]).unwrap();
    assert!(tree.gave_up(Prefix::empty(None).after(&ids(0..32))));
    assert!(!tree.gave_up(Prefix::empty(None).after(&ids(0..33))));
}

#[test]
fn twins_become_one() {
    let mut tree = PrefixTree::new(100);
    let (one, _) = put(&mut tree, &ids(0..10), 0);
    // Another way to the same ids, on a page of its own.
    let two = tree.insert(None, &[], &ids(0..8), PageId(5));
    let mut reader = Vec::new();
    assert!(tree.claim(one[0], 10, 1) && tree.claim(two, 8, 1));
    let full = tree.extend(one[0], &ids(10..16), 1);
    assert_eq!(tree.resume(None, &ids(0..5), &mut reader, 0), 5);
    let merged = tree.extend(two, &ids(8..16), 1);
    assert_eq!((merged, tree.take_spare()), (full, None), "the reader stands on it");
    tree.check([[full].as_slice(), &[merged], &reader]).unwrap();
    assert!(!tree.is_attached(two), "but nobody finds it");
    tree.release(&reader, 2);
    assert_eq!(tree.take_spare(), Some(PageId(5)));
    tree.check([[full].as_slice(), &[merged]]).unwrap();
}

#[test]
fn a_hint_of_another_time_is_not_followed() {
    let mut tree = PrefixTree::new(100);
    let (path, _) = put(&mut tree, &ids(0..40), 0);
    tree.release(&path, 1);
    while tree.evict().is_some() {}
    let (other, _) = put(&mut tree, &ids(50..90), 0);
    let mut hint = path.clone();
    assert_eq!(tree.resume(None, &ids(0..40), &mut hint, 40), 0);
    assert_eq!(hint, []);
    tree.release(&other, 2);
    let mut hint = other.clone();
    assert_eq!(tree.resume(None, &ids((50..85).chain([1])), &mut hint, 35), 35);
    tree.check([hint.as_slice()]).unwrap();
}

#[test]
fn an_end_is_cut_only_where_nobody_else_stands_on_it() {
    let mut tree = PrefixTree::new(100);
    let (path, _) = put(&mut tree, &ids(0..10), 0);
    let mut reader = Vec::new();
    tree.resume(None, &ids(0..6), &mut reader, 0);
    assert_eq!(tree.cut(path[0], 4), None);
    tree.release(&reader, 1);
    let cut = tree.cut(path[0], 4).unwrap();
    assert_eq!(found(&mut tree, &ids(0..10)), 4);
    tree.check([[cut].as_slice()]).unwrap();
    assert!(tree.gave_up(Prefix::empty(None).after(&ids(0..5))));
    assert!(!tree.gave_up(Prefix::empty(None).after(&ids(0..4))));
}
