//! What a container was made from: a digest of the compose files, worn by the container as a label.
//!
//! Implementation note: the label is given in a third compose file, written anew by each `up`. In `compose.yaml`
//! itself it would stay the same when somebody edits that file by hand, and it could not cover the user's override.

use sha2::{Digest as _, Sha256};

use crate::{
    compose::SERVICE,
    host::{Error, ErrorKind, Pod, Result},
    token::replace_private,
};

/// The label that bears the digest.
pub(super) const CONFIG_LABEL: &str = "io.podlink.config";
/// The third file.
pub(super) const LABEL_FILE: &str = "compose.label.yaml";

/// The digest of what compose would read now.
pub(super) fn digest(pod: &Pod) -> Result<String> {
    let mut hash = Sha256::new();
    for name in [Pod::COMPOSE_FILE, Pod::OVERRIDE_FILE] {
        let path = pod.dir().join(name);
        match fs_err::read(&path) {
            // the length parts the files
            Ok(text) => {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(zeroize::Zeroizing::new(text).as_slice());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name == Pod::OVERRIDE_FILE => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::Settings, format!("{} is missing", path.display()))
                    .with_hint(format!("write it anew with `podlink setup --pod {}`", pod.name())));
            }
            Err(error) => {
                return Err(Error::new(ErrorKind::File, "could not read the pod's compose files").with_source(error));
            }
        }
    }
    Ok(hex::encode(&hash.finalize()[..8]))
}

/// Writes the file that gives the container its label.
pub(super) fn write_label(pod: &Pod, digest: &str) -> Result<()> {
    let text = format!(
        "# Written by podlink pod up, to tell later whether the container was made from what the files say.\n\
         services:\n  {SERVICE}:\n    labels:\n      {CONFIG_LABEL}: \"{digest}\"\n"
    );
    Ok(replace_private(&pod.dir().join(LABEL_FILE), text.as_bytes())?)
}
