//! The program `handfast`.

fn main() {}
