//! The way into an attached call: the upgrade of a proved connection, and the first messages on it.

use std::time::Instant;

use reqwest::{Method, RequestBuilder, StatusCode, header};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    super::{Error, ErrorKind, Result},
    AgentClient, RequestId,
    answer::Answer,
    attached::{Attached, Socket},
    frames::garbled,
    http::{read_body, segment},
};
use crate::protocol::{AttachRequest, HEADER_REQUEST_ID, MAX_MESSAGE, PATH_EXEC_ATTACH, PATH_PROCESSES};

impl AgentClient {
    /// Runs a script or a program in the guest and stays attached to it, with its stdin and, where one is asked for, a
    /// terminal. Returns once the program runs.
    ///
    /// # Errors
    /// As [`AgentClient::exec`]; [`ErrorKind::Unsupported`] where the pod's agent is not podlink's own. After
    /// [`ErrorKind::AgentLost`] it is not known whether the program was started.
    ///
    /// # Example
    /// ```
    /// # use podlink::{guest::InProcessAgent, host::{AgentClient, ClientSettings}};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = InProcessAgent::start().await?;
    /// # let client = AgentClient::new(agent.address(), agent.token().clone(), ClientSettings::DEFAULT)?;
    /// use podlink::{host::AttachEvent, protocol::{AttachRequest, ExecRequest, Pty}};
    ///
    /// let exec = ExecRequest::script("stty size; cat");
    /// let pty = Some(Pty { rows: 40, cols: 100, ..Pty::default() });
    /// let (mut input, mut output) = client.attach(&AttachRequest { exec, pty }).await?.split();
    /// input.write(b"typed\n\x04").await?; // as with a keyboard: Ctrl-D is the end
    /// let (mut screen, mut rc) = (Vec::new(), None);
    /// while let Some(event) = output.next().await {
    ///     match event? {
    ///         AttachEvent::Stdout(bytes) => screen.extend_from_slice(&bytes),
    ///         AttachEvent::Exit(result) => rc = Some(result.rc),
    ///         _ => {}
    ///     }
    /// }
    /// let screen = String::from_utf8(screen)?;
    /// assert!(screen.contains("40 100") && screen.contains("typed"), "{screen}");
    /// assert_eq!(rc, Some(0));
    /// # agent.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn attach(&self, request: &AttachRequest) -> Result<Attached> {
        self.attach_as(&RequestId::generate()?, request).await
    }

    /// As [`AgentClient::attach`], under an id by which [`AgentClient::cancel`] can end it.
    ///
    /// # Errors
    /// As [`AgentClient::attach`].
    pub async fn attach_as(&self, id: &RequestId, request: &AttachRequest) -> Result<Attached> {
        let body = Self::exec_body(request)?;
        let text = std::str::from_utf8(&body).map_err(|error| {
            Error::new(ErrorKind::Internal, "the call cannot be written as JSON").with_source(error)
        })?;
        let first = Message::text(text);
        let socket = self.upgrade(PATH_EXEC_ATTACH, Some(id)).await?;
        Attached::begin(self, socket, Some(first), self.start_wait(&request.exec)).await
    }

    /// Attaches to a call that runs, or to the output that is kept of one that has ended: from `offset`, or from the
    /// oldest that the agent has.
    ///
    /// # Errors
    /// As [`AgentClient::attach`]; [`ErrorKind::NotFound`] where the agent does not know it.
    pub async fn attach_to(&self, process_id: &str, offset: Option<u64>) -> Result<Attached> {
        // asked from 0 on where the oldest is meant: what is missing until there tells where that is
        let path = format!("{PATH_PROCESSES}/{}/attach?offset={}", segment(process_id), offset.unwrap_or(0));
        let socket = self.upgrade(&path, None).await?;
        let mut attached = Attached::begin(self, socket, None, self.settings.call_deadline).await?;
        attached.starts_at(offset);
        Ok(attached)
    }

    /// A WebSocket over a proved connection.
    async fn upgrade(&self, path: &str, id: Option<&RequestId>) -> Result<Socket> {
        self.podlinks_own("attach to a call")?;
        let deadline = Instant::now()
            + self.settings.connect_deadline
            + self.settings.proof_deadline
            + self.settings.call_deadline;
        let mut again = true;
        loop {
            let key = generate_key();
            let mut request = self
                .authorized(Method::GET, path)
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, &key);
            if let Some(id) = id {
                request = request.header(HEADER_REQUEST_ID, &id.0);
            }
            match tokio::time::timeout_at(deadline.into(), self.shake_hands(request, &key)).await {
                Err(_) => return Err(self.place.error(&super::Seen::Silent)),
                // nothing runs before the first message: one more try is safe, on a connection that is not stale
                Ok(Err(HandshakeError::Broken(error))) if again && !error.is_connect() => again = false,
                Ok(Err(HandshakeError::Broken(error))) => return Err(self.sending_failed(&error)),
                Ok(Err(HandshakeError::Refused(error))) => return Err(error),
                Ok(Ok(socket)) => return Ok(socket),
            }
        }
    }

    async fn shake_hands(&self, request: RequestBuilder, key: &str) -> Result<Socket, HandshakeError> {
        let response = request.send().await.map_err(HandshakeError::Broken)?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let answer = match read_body(response, self.settings.max_answer).await {
                Ok(body) => Answer { status, body },
                Err(super::http::BodyError::Broken(error)) => return Err(HandshakeError::Broken(error)),
                Err(super::http::BodyError::TooLarge) => return Err(HandshakeError::Refused(self.too_large())),
            };
            return Err(HandshakeError::Refused(match answer.parse::<serde::de::IgnoredAny>(&self.place) {
                Err(error) => error,
                Ok(_) => self.unsupported("attach to a call"),
            }));
        }
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT).map(header::HeaderValue::as_bytes);
        if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(HandshakeError::Refused(garbled("a wrong answer to the WebSocket's key")));
        }
        let connection = response.upgrade().await.map_err(HandshakeError::Broken)?;
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        Ok(WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await)
    }
}

/// Why there is no WebSocket.
enum HandshakeError {
    /// The connection failed.
    Broken(reqwest::Error),
    /// The agent said why.
    Refused(Error),
}
