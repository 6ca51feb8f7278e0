//! Passes to the linker the routine that unwinds the extension's frames.

fn main() {
    // See crates/capi/src/forced_unwind.rs.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--defsym=DW.ref.rust_eh_personality=ROPEWALK_PERSONALITY");
}
