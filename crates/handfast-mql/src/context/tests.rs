use super::*;

/// The first outputs for seed 1234567 as the reference implementation in C prints them.
#[test]
fn random_numbers_are_those_of_splitmix64() {
    let random = Random::new(1_234_567);
    let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
    assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn random_numbers_stay_in_their_range() {
    let random = Random::new(7);
    for _ in 0..1000 {
        assert!((0.0..1.0).contains(&random.next_f64()));
        assert!(random.next_below(3) < 3);
    }
    assert_eq!(random.next_below(0), 0);
}
