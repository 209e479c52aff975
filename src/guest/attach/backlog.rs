//! What a client has typed and the program has not read yet: bounded, in order, and apart from the conversation, so
//! that a program which does not read holds up nothing but further typing.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::super::process::{Input, Live};

/// Bytes that wait for the program at most; a single message may be larger, and waits alone then.
const MOST: u32 = 1024 * 1024;

/// What a message takes of that besides its bytes.
const EACH: usize = 256;

/// The client's side.
#[derive(Debug)]
pub(super) struct Backlog {
    room: Arc<Semaphore>,
    items: mpsc::Sender<(Item, OwnedSemaphorePermit)>,
    live: Arc<Live>,
}

/// The program's side, until the program has been started.
#[derive(Debug)]
pub(super) struct Waiting {
    items: mpsc::Receiver<(Item, OwnedSemaphorePermit)>,
}

#[derive(Debug)]
enum Item {
    Typed(Bytes),
    End,
}

/// Both sides of an empty one, on the way to this run.
pub(super) fn backlog(live: Arc<Live>) -> (Backlog, Waiting) {
    let (sender, receiver) = mpsc::channel(MOST as usize / EACH); // as many as there is room for
    let room = Arc::new(Semaphore::new(MOST as usize));
    (Backlog { room, items: sender, live }, Waiting { items: receiver })
}

impl Backlog {
    /// Adds what was typed; waits while there is no room.
    pub(super) async fn typed(&self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.push(Item::Typed(bytes)).await;
        }
    }

    /// The client will type nothing more.
    pub(super) async fn end(&self) {
        self.push(Item::End).await;
    }

    async fn push(&self, item: Item) {
        let len = match &item {
            Item::Typed(bytes) => bytes.len(),
            Item::End => 0,
        };
        let room = u32::try_from(len + EACH).unwrap_or(MOST).min(MOST);
        if let Ok(room) = Arc::clone(&self.room).acquire_many_owned(room).await {
            drop(self.items.send((item, room)).await);
        }
    }

    /// Gives the program's terminal another size, at once: sizes take the way past what was typed.
    pub(super) fn resize(&self, rows: u16, cols: u16) {
        self.live.resize(rows, cols);
    }
}

impl Waiting {
    /// Feeds the program, in a task that ends when the client's side is gone and all of it was taken; so what was typed
    /// before a client detached still arrives.
    ///
    /// Where the program has no stdin, or reads no more, it is dropped.
    pub(super) fn feed(mut self, input: Option<Arc<Input>>) {
        tokio::spawn(async move {
            let mut open = input;
            while let Some((item, room)) = self.items.recv().await {
                if let Some(input) = &open {
                    match item {
                        Item::Typed(bytes) => {
                            if let Err(closed) = input.write(&bytes).await {
                                tracing::debug!(?closed, "the program reads no more; what is typed is dropped");
                                open = None;
                            }
                        }
                        Item::End => {
                            input.close().await;
                            open = None;
                        }
                    }
                }
                drop(room);
            }
        });
    }
}
