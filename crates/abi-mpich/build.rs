//! Sets the cfg that makes the source of `eyrie-abi` speak MPICH's ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(abi_mpich)");
    println!("cargo:rustc-check-cfg=cfg(abi_openmpi)");
    println!("cargo:rustc-cfg=abi_mpich");
}
