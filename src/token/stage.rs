//! The copy of the token that travels into the guest.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    Token, TokenError,
    private::{Owners, ensure_private_dir, is_its_own, open_private, replace_private},
    store::file_content,
};

/// The copy's name in the folder that becomes `/oem` in the container and `C:\OEM` in Windows.
pub const STAGED_NAME: &str = "agent_token.txt";

/// Lays a plain copy of the token into `oem` and returns its path; a right one that is there is left alone.
///
/// It is a file of its own: the images pack the folder into a FAT image, which has no links, owners or modes.
///
/// # Errors
/// When the folder or the file in it is not ours, or cannot be written.
pub fn stage(token: &Token, oem: &Path) -> Result<PathBuf, TokenError> {
    ensure_private_dir(oem)?;
    let path = oem.join(STAGED_NAME);
    let wanted = file_content(token);
    if !holds(&path, wanted.as_bytes())? {
        replace_private(&path, wanted.as_bytes())?;
    }
    Ok(path)
}

/// Whether exactly this stands there already, as a file of its own.
fn holds(path: &Path, wanted: &[u8]) -> Result<bool, TokenError> {
    let file = match open_private(path, Owners::Us) {
        Ok(file) => file,
        Err(TokenError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !is_its_own(&file)? {
        return Ok(false); // a hard link shares its content with something else
    }
    let mut content = zeroize::Zeroizing::new(Vec::with_capacity(wanted.len() + 1));
    file.take(wanted.len() as u64 + 1).read_to_end(&mut content)?;
    Ok(*content == wanted)
}

#[cfg(all(test, unix))] // modes and links, and only the host stages
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{super::private::others_with_access, *};

    #[test]
    fn the_copy_is_plain_and_follows_the_token() {
        let top = tempfile::tempdir().unwrap();
        let (oem, original) = (top.path().join("oem"), top.path().join("original"));
        let (one, two) = (Token::generate().unwrap(), Token::generate().unwrap());
        let path = stage(&one, &oem).unwrap();
        let written = SystemTime::now() - Duration::from_hours(1);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        let written = fs_err::metadata(&path).unwrap().modified().unwrap();
        stage(&one, &oem).unwrap();
        assert_eq!(fs_err::metadata(&path).unwrap().modified().unwrap(), written, "a right copy is left alone");
        assert_eq!(others_with_access(&path).unwrap(), [""; 0]);
        stage(&two, &oem).unwrap();
        assert_eq!(fs_err::read_to_string(&path).unwrap().trim(), two.expose().as_str());

        fs_err::hard_link(&path, &original).unwrap();
        stage(&two, &oem).unwrap();
        let staged = open_private(&path, Owners::Us).unwrap();
        assert!(is_its_own(&staged).unwrap(), "a hard link is replaced by a file of its own");
    }
}
