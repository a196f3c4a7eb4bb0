use proptest::prelude::*;

use super::{Merge, MergeQueue, sorted::SortedNumbers};
use crate::{
    accumulator::{Average, Deviation, Sum},
    number::Number,
};

/// A total that shows the order of its values.
#[derive(Clone, Debug, Default, PartialEq)]
struct Text(String);

impl Merge for Text {
    fn merge(&mut self, later: &Self) {
        self.0.push_str(&later.0);
    }
}

#[test]
fn totals_are_those_of_the_window_in_its_order() {
    let mut window = MergeQueue::new(true);
    let mut model = std::collections::VecDeque::new();
    for step in 0..200_u32 {
        if step % 7 < 4 || model.is_empty() {
            let letter = char::from(b'a' + (step % 26) as u8).to_string();
            model.push_back(letter.clone());
            window.enter(Text(letter));
        } else {
            model.pop_front();
            window.leave();
        }
        assert_eq!(window.total().0, model.iter().cloned().collect::<String>());
    }
}

#[test]
fn a_window_that_nothing_leaves_keeps_its_total_alone() {
    let mut window = MergeQueue::new(false);
    for number in 0..1000 {
        let mut one = Sum::default();
        one.add(Number::Int(number));
        window.enter(one);
    }
    assert_eq!((window.total().total(), window.bytes()), (Number::Int(499_500), 0));
}

#[test]
fn what_has_left_a_window_leaves_no_trace() {
    let one = |number| {
        let mut one = Sum::default();
        one.add(number);
        one
    };
    let mut window = MergeQueue::new(true);
    let numbers = [Number::Double(1e300), Number::Double(f64::NAN), Number::Double(f64::INFINITY), Number::Long(5)];
    for number in numbers {
        window.enter(one(number));
    }
    window.enter(one(Number::Int(1)));
    window.leave();
    window.leave();
    assert_eq!(window.total().total(), Number::Double(f64::INFINITY));
    window.leave();
    assert_eq!(window.total().total(), Number::Long(6));
    window.leave();
    assert_eq!(window.total().total(), Number::Int(1));
}

#[test]
fn merged_deviations_and_averages_are_those_of_all_numbers() {
    let numbers = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    for split in 0..=numbers.len() {
        let part = |numbers: &[f64]| {
            let (mut deviation, mut average) = (Deviation::default(), Average::default());
            for number in numbers {
                deviation.add(Number::Double(*number));
                average.add(Number::Double(*number));
            }
            (deviation, average)
        };
        let (mut deviation, mut average) = part(&numbers[..split]);
        let later = part(&numbers[split..]);
        deviation.merge(&later.0);
        average.merge(&later.1);
        assert!((deviation.result(false).unwrap() - 2.0).abs() < 1e-12, "{split}");
        assert_eq!(average.result(), Some(Number::Double(5.0)), "{split}");
    }
}

proptest! {
    #[test]
    fn sorted_numbers_agree_with_a_sorted_list(steps in prop::collection::vec((any::<bool>(), -50..50_i32), 0..3000)) {
        let (mut sorted, mut model) = (SortedNumbers::default(), Vec::new());
        for (adds, number) in steps {
            let number = f64::from(number);
            if adds || model.len() < 600 {
                sorted.insert(number);
                let at = model.partition_point(|known: &f64| *known < number);
                model.insert(at, number);
            } else {
                sorted.remove(number);
                if let Some(at) = model.iter().position(|known| *known == number) {
                    model.remove(at);
                }
            }
        }
        prop_assert_eq!(sorted.len(), model.len());
        for n in 0..=model.len() {
            prop_assert_eq!(sorted.nth(n), model.get(n).copied());
        }
    }
}
