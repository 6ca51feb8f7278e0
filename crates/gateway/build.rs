//! Makes the messages and the service of `proto/`. The compiler of the definitions is a library: no `protoc` is needed.

use std::error::Error;
use std::path::PathBuf;

use buffa_codegen::BytesRepr;
use connectrpc_build::CodeGenConfig;
use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["proto/ropewalk/v1/tools.proto", "proto/inference/inference.proto"];
    // Its code is a crate of its own. Reflection lists it, too.
    let described = [files.as_slice(), &["proto/grpc/health/v1/health.proto"]].concat();
    for file in &described {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(described, ["proto"])?.encode_to_vec();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let path = out.join("descriptors.bin");
    std::fs::write(&path, descriptors)?;
    // Fields of bytes are parts of the message as it came, and not copies.
    let mut representations = CodeGenConfig::default();
    representations.generate_json = true;
    representations.bytes_fields.push((String::from("."), BytesRepr::Bytes));
    connectrpc_build::Config::new()
        .buffa_config(representations)
        .files(&files.map(|file| file.trim_start_matches("proto/")))
        .includes(&["proto"])
        .descriptor_set(path)
        // It would name the descriptors, which this has just written: all of it would be built again each time.
        .emit_rerun_directives(false)
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
