//! The examples are run unchanged.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "examples are read, and run by hand")]

macro_rules! examples {
    ($($name:ident = $path:literal),+ $(,)?) => {$(
        #[path = $path]
        mod $name;

        #[test]
        fn $name() {
            $name::main().unwrap();
        }
    )+};
}

examples! {
    open = "../examples/01_open.rs",
    transfer = "../examples/02_transfer.rs",
    conflict = "../examples/03_conflict.rs",
    serializable = "../examples/04_serializable.rs",
    outcome = "../examples/05_outcome.rs",
    exactly_once = "../examples/06_exactly_once.rs",
    two_phase_commit = "../examples/07_two_phase_commit.rs",
    job_queue = "../examples/08_job_queue.rs",
    ledger = "../examples/09_ledger.rs",
    sync_flag = "../examples/10_sync_flag.rs",
    versioned_tree = "../examples/11_versioned_tree.rs",
    left_behind = "../examples/13_left_behind.rs",
    two_stores = "../examples/14_two_stores.rs",
}

/// The programs of the guides, as a reader pastes them.
mod guides {
    macro_rules! guides {
        ($($name:ident = $guide:literal, $program:literal);+ $(;)?) => {$(
            mod $name {
                include!($program);

                #[test]
                fn runs() {
                    main().unwrap();
                }

                #[test]
                fn is_in_its_guide() {
                    let guide = include_str!(concat!("../../../docs/patterns/", $guide));
                    assert!(guide.contains(include_str!($program)), "{} has another program than {}", $guide, $program);
                }
            }
        )+};
    }

    guides! {
        exactly_once = "exactly-once.md", "guides/exactly_once.rs";
        job_queue = "job-queue.md", "guides/job_queue.rs";
        ledger = "ledger.md", "guides/ledger.rs";
        sync_flag = "sync-flag.md", "guides/sync_flag.rs";
        two_phase_commit = "two-phase-commit.md", "guides/two_phase_commit.rs";
        versioned_tree = "versioned-tree.md", "guides/versioned_tree.rs";
    }
}
