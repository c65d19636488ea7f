//! Lanes for ways that run side by side.

/// Which lane each span has, from 0 (the nearest), and how many lanes there are.
pub(super) struct Lane {
    pub of: Vec<usize>,
    pub count: usize,
}

/// Gives spans `(first, last)` of rows lanes in which no two share a row; short spans lie nearest.
pub(super) fn assign(spans: &[(usize, usize)]) -> Lane {
    let mut short_first: Vec<usize> = (0..spans.len()).collect();
    short_first.sort_by_key(|&n| (spans[n].1 - spans[n].0, spans[n].0));
    // Of each lane the spans in it, by their first row.
    let mut lanes: Vec<std::collections::BTreeMap<usize, usize>> = Vec::new();
    let mut of = vec![0; spans.len()];
    for n in short_first {
        let (first, last) = spans[n];
        let free = |lane: &std::collections::BTreeMap<usize, usize>| {
            lane.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
        };
        let lane = lanes.iter().position(free).unwrap_or_else(|| {
            lanes.push(Default::default());
            lanes.len() - 1
        });
        lanes[lane].insert(first, last);
        of[n] = lane;
    }
    Lane { of, count: lanes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_spans_lie_nearest_and_none_share_a_row() {
        let lanes = assign(&[(0, 9), (1, 3), (3, 5), (4, 6), (7, 8)]);
        assert_eq!(lanes.of, [2, 0, 1, 0, 0]);
        assert_eq!(lanes.count, 3);
        assert_eq!(assign(&[]).count, 0);
        assert_eq!(assign(&[(2, 2), (2, 2)]).of, [0, 1]);
    }
}
