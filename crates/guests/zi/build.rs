//! Gives the shared library its soname, which programs that link it record. Without a soname they record the path that
//! was given to the linker, and do not find the library from another folder.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzi.so");
    }
}
