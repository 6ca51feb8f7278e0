//! Requests of each protocol, ready to send, and whether an answer is one.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::plan::Plan;
use crate::tally::Outcome;

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// POST of a body, HTTP/1.1, a connection for each caller.
    Http,
    /// `ropewalk.v1.Tools/Execute`, HTTP/2, four connections for all callers.
    Grpc,
}

/// A request that is sent again and again.
#[derive(Clone, Debug)]
pub struct Sent {
    /// How.
    pub protocol: Protocol,
    address: String,
    uri: String,
    method: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A connection of one caller, or one that callers share.
pub enum Connection {
    /// HTTP/1.1.
    One(http1::SendRequest<Full<Bytes>>),
    /// HTTP/2.
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// The same, for another caller.
    ///
    /// # Panics
    ///
    /// On a connection that callers cannot share.
    #[must_use]
    pub fn shared(&self) -> Self {
        match self {
            Self::One(_) => panic!("a connection of HTTP/1.1 has one caller"),
            Self::Two(sender) => Self::Two(sender.clone()),
        }
    }
}

/// A field of protobuf that has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 127 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(content);
    field
}

impl Sent {
    /// The request that a plan describes: `protocol`, `port`, and `path`, `body`, `type`, `accept` or `tool`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let port = plan.text("port", "8080");
        let body = plan.text("body", "{}");
        let address = format!("127.0.0.1:{port}");
        if plan.text("protocol", "http") == "grpc" {
            let arguments = field(1, body.as_bytes());
            let message = [field(1, plan.text("tool", "echo").as_bytes()), field(2, &arguments)].concat();
            let mut framed = BytesMut::from(&[0][..]);
            framed.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
            framed.extend_from_slice(&message);
            return Self {
                protocol: Protocol::Grpc,
                uri: format!("http://{address}/ropewalk.v1.Tools/Execute"),
                address,
                method: String::from("POST"),
                headers: vec![
                    (String::from("content-type"), String::from("application/grpc")),
                    (String::from("te"), String::from("trailers")),
                ],
                body: framed.freeze(),
            };
        }
        let mut headers = vec![
            (String::from("host"), address.clone()),
            (String::from("content-type"), String::from("application/json")),
        ];
        let more =
            [("accept", "accept"), ("mcp-protocol-version", "revision"), ("x-ropewalk-timeout", "timeout")];
        for (name, word) in more {
            let value = plan.text(word, "");
            if !value.is_empty() {
                headers.push((String::from(name), String::from(value)));
            }
        }
        let method = plan.text("method", "POST").to_owned();
        let body = if method == "GET" { Bytes::new() } else { Bytes::copy_from_slice(body.as_bytes()) };
        Self {
            protocol: Protocol::Http,
            uri: plan.text("path", "/").to_owned(),
            address,
            method,
            headers,
            body,
        }
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// When the server is not there.
    pub async fn connect(&self) -> Result<Connection, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        Ok(match self.protocol {
            Protocol::Http => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Connection::One(sender)
            }
            Protocol::Grpc => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Connection::Two(sender)
            }
        })
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method.as_str()).uri(&self.uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.clone())).expect("a request")
    }

    /// Sends it, and waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// When the connection broke.
    pub async fn begin(&self, connection: &mut Connection) -> hyper::Result<Response<Incoming>> {
        match connection {
            Connection::One(sender) => {
                sender.ready().await?;
                sender.send_request(self.request()).await
            }
            Connection::Two(sender) => {
                sender.ready().await?;
                sender.send_request(self.request()).await
            }
        }
    }

    /// Sends it, and reads the answer.
    pub async fn send(&self, connection: &mut Connection) -> Outcome {
        let Ok(response) = self.begin(connection).await else { return Outcome::Broken };
        let status = response.status();
        let early = response.headers().get("grpc-status").cloned();
        let Ok(whole) = response.into_body().collect().await else { return Outcome::Broken };
        match self.protocol {
            Protocol::Http if status == StatusCode::OK => Outcome::Answered,
            Protocol::Http if matches!(status.as_u16(), 429 | 503 | 504) => Outcome::Refused,
            Protocol::Http => Outcome::Failed,
            Protocol::Grpc => {
                let status =
                    whole.trailers().and_then(|trailers| trailers.get("grpc-status")).or(early.as_ref());
                match status.map(hyper::header::HeaderValue::as_bytes) {
                    Some(b"0") => Outcome::Answered,
                    Some(b"4" | b"8" | b"14") => Outcome::Refused,
                    _ => Outcome::Failed,
                }
            }
        }
    }
}
