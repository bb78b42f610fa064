//! The granted folder: no path that a program can write, and no link it meets, leads out of the folder.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use millrace_wasm::capability::{Folder, FsErrorKind};

const BYTES_MAX: usize = 1 << 16;

/// A secret beside the granted folder, and links inside that lead to it.
struct Ground {
    _root: tempfile::TempDir,
    granted: PathBuf,
    outside: PathBuf,
    folder: Folder,
}

fn ground() -> Ground {
    let root = tempfile::tempdir().unwrap();
    let (granted, outside) = (root.path().join("granted"), root.path().join("outside"));
    fs::create_dir_all(granted.join("sub")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s3cret").unwrap();
    fs::write(granted.join("inside"), "hello").unwrap();
    symlink(outside.join("secret"), granted.join("file_link")).unwrap();
    symlink(&outside, granted.join("dir_link")).unwrap();
    symlink("../outside/secret", granted.join("relative_link")).unwrap();
    symlink(outside.join("new"), granted.join("dangling_link")).unwrap();
    symlink("..", granted.join("sub").join("up")).unwrap();
    symlink("../..", granted.join("sub").join("up_up")).unwrap();
    symlink("../inside", granted.join("sub").join("honest_link")).unwrap();
    symlink("loop_b", granted.join("loop_a")).unwrap();
    symlink("loop_a", granted.join("loop_b")).unwrap();
    let folder = Folder::open(&granted).unwrap();
    Ground { _root: root, granted, outside, folder }
}

fn ways_out(ground: &Ground) -> Vec<String> {
    let absolute = ground.outside.join("secret");
    let mut ways = vec![absolute.to_str().unwrap().to_owned(), format!("/{}", absolute.display())];
    for way in [
        "../outside/secret",
        "sub/../../outside/secret",
        "./../outside/secret",
        "sub/up_up/outside/secret",
        "sub/up/../outside/secret",
        "file_link",
        "relative_link",
        "dir_link/secret",
        "dir_link/../outside/secret",
        "sub/../dir_link/secret",
    ] {
        ways.push(way.to_owned());
    }
    ways
}

#[test]
fn no_way_out_reads() {
    let ground = ground();
    for way in ways_out(&ground) {
        let error = ground.folder.read(&way, BYTES_MAX).unwrap_err();
        assert_eq!(error.kind, FsErrorKind::PermissionDenied, "{way}: {error}");
        assert!(error.message.contains("outside the granted folder"), "{way}: {error}");
        assert!(!ground.folder.exists(&way), "{way}");
    }
}

#[test]
fn no_way_out_writes() {
    let ground = ground();
    for way in ways_out(&ground) {
        assert!(ground.folder.write(&way, b"x").is_err(), "{way}");
        assert!(ground.folder.create(&way, b"x").is_err(), "{way}");
    }
    for way in ["dangling_link", "dir_link/new", "../outside/new", "sub/up_up/outside/new"] {
        assert!(ground.folder.write(way, b"x").is_err(), "{way}");
        assert!(ground.folder.create(way, b"x").is_err(), "{way}");
    }
    for way in ["dir_link/new", "../outside/new", "dir_link/secret"] {
        assert!(ground.folder.write_atomic(way, b"x").is_err(), "{way}");
        assert!(ground.folder.create_dir_all(&format!("{way}.d")).is_err(), "{way}");
    }
    assert_eq!(fs::read_to_string(ground.outside.join("secret")).unwrap(), "s3cret");
    assert_eq!(fs::read_dir(&ground.outside).unwrap().count(), 1);
}

#[test]
fn no_way_out_lists_renames_or_removes() {
    let ground = ground();
    for way in ["..", "dir_link", "sub/up_up", "/", "../outside"] {
        assert!(ground.folder.list(way, BYTES_MAX).is_err(), "{way}");
    }
    for (from, to) in [
        ("inside", "../outside/moved"),
        ("inside", "dir_link/moved"),
        ("../outside/secret", "stolen"),
        ("dir_link/secret", "stolen"),
    ] {
        assert!(ground.folder.rename(from, to).is_err(), "{from} to {to}");
    }
    assert!(ground.folder.remove("../outside/secret").is_err());
    assert!(ground.folder.remove("dir_link/secret").is_err());
    assert!(ground.outside.join("secret").exists() && ground.granted.join("inside").exists());
}

#[test]
fn removing_or_replacing_a_link_leaves_what_it_points_to() {
    let ground = ground();
    ground.folder.remove("file_link").unwrap();
    ground.folder.write_atomic("relative_link", b"mine").unwrap();
    assert_eq!(fs::read_to_string(ground.outside.join("secret")).unwrap(), "s3cret");
    assert_eq!(fs::read_to_string(ground.granted.join("relative_link")).unwrap(), "mine");
    assert!(!ground.granted.join("file_link").exists());
}

#[test]
fn links_and_dots_that_stay_inside_work() {
    let Ground { folder, .. } = &ground();
    for path in ["inside", "./inside", "sub/../inside", "sub/honest_link", "sub/up/inside"] {
        assert_eq!(folder.read(path, BYTES_MAX).unwrap(), b"hello", "{path}");
        assert!(folder.exists(path), "{path}");
    }
    assert_eq!(folder.read("loop_a", BYTES_MAX).unwrap_err().kind, FsErrorKind::Other);
}

#[test]
fn a_folder_that_is_renamed_stays_the_granted_one() {
    let ground = ground();
    fs::rename(&ground.granted, ground.granted.with_file_name("elsewhere")).unwrap();
    symlink(&ground.outside, &ground.granted).unwrap();
    assert_eq!(ground.folder.read("inside", BYTES_MAX).unwrap(), b"hello");
    assert!(ground.folder.read("secret", BYTES_MAX).is_err());
}

#[test]
fn files_do_what_their_operations_say() {
    let Ground { folder, granted, .. } = &ground();
    folder.write("sub/a", b"1").unwrap();
    folder.write("sub/a", b"").unwrap();
    assert_eq!(folder.read("sub/a", BYTES_MAX).unwrap(), b"");
    assert_eq!(folder.create("sub/a", b"2").unwrap_err().kind, FsErrorKind::AlreadyExists);
    folder.write_atomic("sub/a", b"whole").unwrap();
    assert_eq!(folder.read("sub/a", BYTES_MAX).unwrap(), b"whole");
    let missing = folder.read("nothing", BYTES_MAX).unwrap_err();
    assert_eq!((missing.kind, missing.code), (FsErrorKind::NotFound, -2));
    folder.create_dir_all("x/y").unwrap();
    assert_eq!(folder.remove("x").unwrap_err().kind, FsErrorKind::Conflict);
    folder.rename("sub/a", "x/y/b").unwrap();
    assert_eq!(folder.list("x/y/", BYTES_MAX).unwrap(), ["x/y/b"]);
    folder.remove("x/y/b").unwrap();
    folder.remove("x/y").unwrap();
    assert!(!granted.join("x/y").exists());
    assert_eq!(folder.list("sub", BYTES_MAX).unwrap(), ["sub/honest_link", "sub/up", "sub/up_up"]);
}

#[test]
fn what_does_not_fit_is_refused_and_pipes_do_not_hold_up() {
    let Ground { folder, granted, .. } = &ground();
    assert_eq!(folder.read("inside", 5).unwrap(), b"hello");
    assert_eq!(folder.read("inside", 4).unwrap_err().kind, FsErrorKind::TooLarge);
    assert_eq!(folder.list("sub", 10).unwrap_err().kind, FsErrorKind::TooLarge);
    assert!(std::process::Command::new("mkfifo").arg(granted.join("pipe")).status().unwrap().success());
    assert!(folder.read("pipe", BYTES_MAX).unwrap_err().message.contains("not a regular file"));
    assert!(folder.write("pipe", b"x").is_err());
    assert!(folder.read("sub", BYTES_MAX).is_err());
}

#[test]
fn a_folder_that_is_not_there_cannot_be_granted() {
    let error = Folder::open("/no/such/folder").unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}
