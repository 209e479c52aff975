//! What a build makes besides compiling: the Windows executable's version resource, which `podlink setup` reads before it
//! stages it, and with the feature `embed-guest` that executable, compressed, for the host's tool to carry.
#![expect(clippy::disallowed_methods, reason = "what these are disallowed for is not there when this runs")]

use std::{env, error::Error, path::Path, process::Command};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    match env::var("CARGO_CFG_TARGET_OS")?.as_str() {
        "windows" => version_resource(out),
        #[cfg(feature = "embed-guest")]
        _ => embedded_guest(out),
        #[cfg(not(feature = "embed-guest"))]
        _ => Ok(()),
    }
}

/// Compiles the resource and has it linked into the executable.
fn version_resource(out: &Path) -> Result<()> {
    let version = env::var("CARGO_PKG_VERSION")?;
    let number = |part: &str| env::var(format!("CARGO_PKG_VERSION_{part}"));
    let numbers = format!("{},{},{},0", number("MAJOR")?, number("MINOR")?, number("PATCH")?);
    let description = "podlink: the agent in the guest";
    let manifest = concat!(
        r#"<assembly xmlns='urn:schemas-microsoft-com:asm.v1' manifestVersion='1.0'>"#,
        r#"<trustInfo xmlns='urn:schemas-microsoft-com:asm.v3'><security><requestedPrivileges>"#,
        r#"<requestedExecutionLevel level='asInvoker' uiAccess='false'/>"#,
        r#"</requestedPrivileges></security></trustInfo>"#,
        r#"<compatibility xmlns='urn:schemas-microsoft-com:compatibility.v1'><application>"#,
        r#"<supportedOS Id='{8e0f7a12-bfb3-4fe8-b9a5-48fd50a15a9a}'/></application></compatibility>"#,
        r#"<application xmlns='urn:schemas-microsoft-com:asm.v3'><windowsSettings>"#,
        r#"<longPathAware xmlns='http://schemas.microsoft.com/SMI/2016/WindowsSettings'>true</longPathAware>"#,
        r#"</windowsSettings></application></assembly>"#,
    );
    let text = format!(
        r#"#define RT_MANIFEST 24
1 RT_MANIFEST "podlink.manifest"
1 VERSIONINFO
FILEVERSION {numbers}
PRODUCTVERSION {numbers}
FILEOS 0x40004
FILETYPE 1
BEGIN
  BLOCK "StringFileInfo"
  BEGIN
    BLOCK "040904B0"
    BEGIN
      VALUE "FileDescription", "{description}"
      VALUE "FileVersion", "{version}"
      VALUE "InternalName", "podlink"
      VALUE "LegalCopyright", "MIT licence"
      VALUE "OriginalFilename", "podlink.exe"
      VALUE "ProductName", "podlink"
      VALUE "ProductVersion", "{version}"
    END
  END
  BLOCK "VarFileInfo"
  BEGIN
    VALUE "Translation", 0x409, 1200
  END
END
"#
    );
    std::fs::write(out.join("podlink.manifest"), manifest)?;
    std::fs::write(out.join("podlink.rc"), text)?;
    let windres = if cfg!(windows) { "windres" } else { "x86_64-w64-mingw32-windres" };
    let object = out.join("resource.o");
    let made = Command::new(windres).arg("podlink.rc").arg(&object).current_dir(out).status();
    if env::var("CARGO_CFG_TARGET_ENV")? == "gnu" && made.is_ok_and(|status| status.success()) {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    } else {
        // it would run, but `podlink setup` could not tell what it is
        println!(
            "cargo:warning={windres} did not run, so podlink.exe does not say its version and setup will refuse it"
        );
    }
    Ok(())
}

/// Compresses what `scripts/build-windows-guest` has made.
#[cfg(feature = "embed-guest")]
fn embedded_guest(out: &Path) -> Result<()> {
    const LEVEL: u8 = 9;
    let exe = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("target/windows-guest/podlink.exe");
    println!("cargo:rerun-if-changed={}", exe.display());
    let bytes = std::fs::read(&exe).map_err(|error| {
        format!("the feature embed-guest needs {} ({error}): run scripts/build-windows-guest first", exe.display())
    })?;
    std::fs::write(out.join("podlink.exe.deflate"), miniz_oxide::deflate::compress_to_vec(&bytes, LEVEL))?;
    Ok(())
}
