//! Gives the C library its name, so that programs find this version of it and no other.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libeyrie_regions.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
