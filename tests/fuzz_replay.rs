//! The seeds of the fuzz targets, on any compiler: `fuzz/README.md` says how they are made.

use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
mod targets;

use targets::pair;

/// Gives each seed of a target to it.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 2, "{} has {} seeds", folder.display(), seeds.len());
    for seed in seeds {
        println!("{}", seed.display());
        run(&std::fs::read(&seed).unwrap());
    }
}

macro_rules! replays {
    ($($target:ident),*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), targets::$target);
        })*
    };
}

replays!(frame, dump, responder, requester, schedule, mad, handshake);
