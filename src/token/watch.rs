//! The guest's side: wait for the token's file, and notice when it changes.
//!
//! Implementation note: the file is read whole every second rather than watched. It is 65 bytes; the kernel's
//! notifications do not cross FAT, network shares and bind mounts, and a poll cannot miss a change.

use std::{path::PathBuf, time::Duration};

use tokio::sync::watch as channel;

use super::{Owners, Token, TokenError, load};

/// How often the file is looked at.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// The first pause while there is no token yet; it doubles from there up to `interval`.
    pub first_retry: Duration,
    /// The pause between looks, and the longest one while there is no token yet.
    pub interval: Duration,
}

impl WatchSettings {
    /// A change is seen within 2 s, with room for a slow disk.
    pub const DEFAULT: Self = Self { first_retry: Duration::from_millis(50), interval: Duration::from_secs(1) };
}

/// Publishes the token in `path` and every later change of it; ends only when nobody listens any more.
///
/// A file that is missing, foreign or malformed ends nothing: the last good token stays in force, and the log says
/// what is wrong, once for each new reason.
pub async fn watch(path: PathBuf, owners: Owners, settings: WatchSettings, publish: channel::Sender<Option<Token>>) {
    let mut pause = settings.first_retry;
    let mut complained: Option<String> = None;
    loop {
        let looked_at = path.clone();
        let loaded = tokio::task::spawn_blocking(move || load(&looked_at, owners)).await;
        match loaded {
            Ok(Ok(token)) => {
                complained = None;
                pause = settings.interval;
                publish.send_if_modified(|current| {
                    if current.as_ref() == Some(&token) {
                        return false;
                    }
                    tracing::info!(path = %path.display(), first = current.is_none(), "token taken from its file");
                    *current = Some(token);
                    true
                });
            }
            Ok(Err(error)) => {
                let missing = matches!(&error, TokenError::Io(error) if error.kind() == std::io::ErrorKind::NotFound);
                let reason = format!("{:#}", anyhow::Error::from(error));
                if complained.as_ref() != Some(&reason) {
                    if missing {
                        tracing::info!(%reason, "no token yet; waiting for its file");
                    } else {
                        tracing::error!(%reason, "the token's file cannot be used; waiting for a good one");
                    }
                    complained = Some(reason);
                }
            }
            Err(_) => {} // the runtime is going down
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = publish.closed() => return,
        }
        pause = (pause * 2).min(settings.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_waits_takes_changes_and_keeps_the_last_good_one() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("token");
        let settings = WatchSettings { first_retry: Duration::from_millis(1), interval: Duration::from_millis(5) };
        let (sender, mut receiver) = channel::channel(None);
        let task = tokio::spawn(watch(path.clone(), Owners::Us, settings, sender));
        let (one, two) = (Token::generate().unwrap(), Token::generate().unwrap());

        super::super::replace_private(&path, one.expose().as_bytes()).unwrap();
        receiver.wait_for(|token| token.as_ref() == Some(&one)).await.unwrap();
        super::super::replace_private(&path, b"not a token").unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(receiver.borrow().as_ref() == Some(&one), "a bad file takes nothing away");
        super::super::replace_private(&path, two.expose().as_bytes()).unwrap();
        receiver.wait_for(|token| token.as_ref() == Some(&two)).await.unwrap();

        drop(receiver);
        tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    }
}
