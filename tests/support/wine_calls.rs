//! Calls of an agent under Wine, in each of their forms.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use podlink::protocol::MEDIA_MULTIPLEXED;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    Answer, Stream, WineAgent,
    http::{Pending, request},
    wait_for,
    ws::Attached,
};

/// A process under Wine takes its time to start on a machine that is busy.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A request that runs this in the command processor.
pub fn cmd(source: &str) -> Value {
    json!({ "script": BASE64_STANDARD.encode(source), "shell": "cmd" })
}

impl WineAgent {
    /// A request that runs `probe.exe`.
    pub fn probe(&self, args: &[&str]) -> Value {
        let probe = self.wine().probe();
        let words = [&[probe.as_str()], args].concat();
        json!({ "argv": words })
    }

    /// Runs it to its end: the result.
    #[track_caller]
    pub fn exec(&self, body: &Value) -> Value {
        let answer = self.post("/exec", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }

    /// Sends a request and does not wait for the answer.
    pub fn begin(&self, method: &str, path: &str, body: &Value, headers: &[(&str, &str)]) -> Pending {
        let bearer = format!("Bearer {}", self.token().expose().as_str());
        let mut all = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
        all.extend(headers);
        Pending::send(self.port(), &request(method, path, &all, body.to_string().as_bytes()))
    }

    /// `POST /exec`, streamed.
    #[track_caller]
    pub fn stream(&self, body: &Value, headers: &[(&str, &str)]) -> Stream {
        let mut all = vec![("accept", MEDIA_MULTIPLEXED)];
        all.extend(headers);
        Stream::of(self.begin("POST", "/exec", body, &all))
    }

    /// A detached call, once its program runs: the agent's name for it.
    #[track_caller]
    pub fn spawn(&self, body: &Value) -> String {
        let mut body = body.clone();
        body["detach"] = true.into();
        let answer = self.post("/exec", &body);
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json["process_id"].as_str().unwrap().to_owned()
    }

    /// `GET /processes/{id}`.
    #[track_caller]
    pub fn info(&self, process_id: &str) -> Value {
        let answer = self.get(&format!("/processes/{process_id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    }

    /// Waits for the end of a call, and says what is known of it then.
    #[track_caller]
    pub fn ended(&self, process_id: &str) -> Value {
        let mut info = Value::Null;
        wait_for("the call to end", PATIENCE, || {
            info = self.info(process_id);
            info["state"] == "exited"
        });
        info
    }

    /// What of a call's output is kept, from its beginning, and what follows.
    #[track_caller]
    pub fn output(&self, process_id: &str) -> Stream {
        let path = format!("/processes/{process_id}/output?offset=0");
        Stream::of(self.begin("GET", &path, &Value::Null, &[]))
    }

    /// Bytes to the stdin of a call.
    pub fn write_stdin(&self, process_id: &str, query: &str, bytes: &[u8]) -> Answer {
        self.authorized("POST", &format!("/processes/{process_id}/stdin{query}")).body(bytes).send()
    }

    /// A call over a WebSocket.
    #[track_caller]
    pub fn attach(&self, request: &Value) -> Attached {
        let bearer = format!("Bearer {}", self.token().expose().as_str());
        let mut client = Attached::upgrade(self.port(), &bearer, "/exec/attach", &[]);
        client.send(Message::text(request.to_string()));
        client
    }

    /// Waits until so many of the world's processes have this in their command line.
    #[track_caller]
    pub fn wait_for_processes(&self, text: &str, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        wait_for(&format!("{count} processes with {text}"), PATIENCE, || {
            found = self.wine().pids_of(text);
            found.len() == count
        });
        found
    }
}
