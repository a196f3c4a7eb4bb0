use super::resolved;

#[test]
fn a_path_is_resolved_as_far_as_it_exists() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("data")).unwrap();
    std::os::unix::fs::symlink(root.join("data"), root.join("link")).unwrap();
    for (path, expected) in [
        ("data", "data"),
        ("link", "data"),
        ("link/backups/new", "data/backups/new"),
        ("data/../backups", "backups"),
        ("made/on/the/way/../../../../data/new", "data/new"),
        ("made/../link/new", "data/new"),
        ("other/backups", "other/backups"),
    ] {
        assert_eq!(resolved(&root.join(path)).unwrap(), root.join(expected), "{path}");
    }
}
