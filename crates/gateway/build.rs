//! Makes the messages and the service of `proto/`. The compiler of the definitions is a library: no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["proto/ropewalk/v1/tools.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?.encode_to_vec();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let path = out.join("descriptors.bin");
    std::fs::write(&path, descriptors)?;
    connectrpc_build::Config::new()
        .files(&files.map(|file| file.trim_start_matches("proto/")))
        .includes(&["proto"])
        .descriptor_set(path)
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
