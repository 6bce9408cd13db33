//! The management API over HTTP: reads requests, has them answered on threads that may block, writes the answers.
//!
//! Nobody makes it read much before the login is right: a body above [`FREE_BODY_BYTES_MAX`] is read for users only, all of
//! them within a bound ([`body`]). Where the request comes from another web site it is refused unless that is allowed.

use crate::api::{Api, COOKIE, Caller, Client, Failure, Reply, Request};
use crate::gzip;
use crate::http::{self, Door, Peer};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

mod answer;
mod body;
mod own_names;
use answer::{Answer, LongAnswers, Pieces};
use body::{BODY_TIMEOUT, NotTaken};
use own_names::OwnNames;

/// How long a client may take to begin a request; connections are kept open between two of them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a body that is read before anybody has logged in.
const FREE_BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a policy or a parameter, and of a list of users to delete.
const SETTING_BYTES_MAX: usize = 1 << 20;
/// Bytes of a file of definitions.
const DEFINITIONS_BYTES_MAX: usize = 200 << 20;
/// KiB of larger bodies that are read and answered at a time.
const LARGE_BODIES_KIB_MAX: usize = 2 * DEFINITIONS_BYTES_MAX / 1024;
/// Answers that are made at a time; others wait.
const ANSWERS_MAX: usize = 8;
/// Of requests that handle messages, which may wait for the broker: looks and health checks do not wait for them.
const MESSAGE_ANSWERS_MAX: usize = 3;
/// Of requests that say how the broker is, who asks and the like: they wait for no list.
const SHORT_ANSWERS_MAX: usize = 4;
/// How long a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// How the API is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What stands before `/api` in every path; empty for nothing.
    pub path_prefix: String,
    /// Bytes of a body with a message; those of others have less, of definitions more.
    pub body_bytes_max: usize,
    /// Web sites whose scripts may use the API (`https://example.com`); `*` is all of them, with a login that the script
    /// has itself.
    pub allowed_origins: Vec<String>,
    /// The header `Strict-Transport-Security` of answers over TLS; empty for none.
    pub hsts_policy: String,
}

/// What answers requests.
struct Desk {
    /// Set once the broker serves.
    api: Arc<OnceLock<Arc<Api>>>,
    settings: Settings,
    hsts_policy: Option<HeaderValue>,
    own_names: OwnNames,
    answers: Arc<Semaphore>,
    message_answers: Arc<Semaphore>,
    short_answers: Arc<Semaphore>,
    large_bodies: Semaphore,
    long_answers: LongAnswers,
}

/// Serves `listeners` until the end of the program, on a thread of its own. Before `api` is set it says that the broker
/// starts.
///
/// # Errors
/// When the thread or its runtime cannot be started.
///
/// # Panics
/// When the policy of [`Settings::hsts_policy`] has characters that no header can hold.
pub fn start(
    listeners: Vec<Door>,
    api: Arc<OnceLock<Arc<Api>>>,
    settings: Settings,
) -> std::io::Result<()> {
    let policy = Some(&settings.hsts_policy).filter(|policy| !policy.is_empty());
    let policy = policy.map(|policy| HeaderValue::from_str(policy).expect("a header's text"));
    let desk = Desk {
        api,
        settings,
        hsts_policy: policy,
        own_names: OwnNames::read(),
        answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
        message_answers: Arc::new(Semaphore::new(MESSAGE_ANSWERS_MAX)),
        short_answers: Arc::new(Semaphore::new(SHORT_ANSWERS_MAX)),
        large_bodies: Semaphore::new(LARGE_BODIES_KIB_MAX),
        long_answers: LongAnswers::default(),
    };
    let router = Router::new().fallback(handle).with_state(Arc::new(desk));
    http::run("management", listeners, router, REQUEST_TIMEOUT)
}

async fn handle(State(desk): State<Arc<Desk>>, request: axum::extract::Request) -> Response {
    let (head, body) = request.into_parts();
    let origin = Origin::of(&desk.settings, &head.headers, &head.method);
    let mut response = match origin {
        Origin::Foreign => desk.refuse_foreign(&head, &origin),
        _ => desk.answer(&head, body, &origin).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding, origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = &desk.hsts_policy
        && head.extensions.get::<Peer>().is_some_and(|peer| peer.is_secure)
    {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, policy.clone());
    }
    origin.allow(headers, &head.headers);
    response
}

impl Desk {
    /// Who sends a request.
    fn client(&self, head: &axum::http::request::Parts, origin: &Origin) -> Client {
        let peer = head.extensions.get::<Peer>();
        let authorization = head.headers.get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let host = head.headers.get(header::HOST).map(|value| value.to_str().unwrap_or("?"));
        let is_passed_on = ["forwarded", "x-forwarded-for", "x-real-ip", "via"]
            .map(|name| head.headers.contains_key(name));
        let names_itself = self.own_names.has(host) && self.own_names.has(head.uri.host());
        let address = peer.map_or_else(nobody, |peer| peer.address);
        Client {
            peer: address,
            is_local: address.ip().to_canonical().is_loopback()
                && names_itself
                && origin.is_trusted()
                && !is_passed_on.contains(&true),
            is_secure: peer.is_some_and(|peer| peer.is_secure),
            authorization,
            session: session_of(&head.headers),
            is_marked: head.headers.contains_key("x-lepus-request"),
            path: self.settings.path_prefix.clone(),
        }
    }

    /// Refuses what another web site made a browser send.
    fn refuse_foreign(&self, head: &axum::http::request::Parts, origin: &Origin) -> Response {
        const STATUS: u16 = 403;
        if let Some(api) = self.api.get() {
            let request = Request {
                path: head.uri.path().to_owned(),
                caller: Caller::Client(self.client(head, origin)),
                ..Request::of_operator(head.method.as_str(), "", Vec::new())
            };
            api.note_refused(&request, STATUS);
        }
        write(failure(STATUS, "forbidden", "the request comes from another web site"))
    }

    /// The places among which a request waits for its turn.
    fn places(&self, path: &str) -> &Arc<Semaphore> {
        let path = path.trim_end_matches('/');
        if ["/publish", "/get", "/contents"].iter().any(|end| path.ends_with(end)) {
            return &self.message_answers;
        }
        let short = ["/api/health", "/api/whoami", "/api/auth", "/api/version"];
        match short.iter().any(|start| path.starts_with(start)) {
            true => &self.short_answers,
            false => &self.answers,
        }
    }

    /// Bytes that a body may have for a path.
    fn body_bytes_max(&self, path: &str) -> usize {
        let max = self.settings.body_bytes_max;
        let path = path.trim_start_matches("/api/").trim_end_matches('/');
        match path.split('/').next().unwrap_or_default() {
            "definitions" => DEFINITIONS_BYTES_MAX,
            "exchanges" if path.ends_with("/publish") => max,
            "policies" | "operator-policies" | "parameters" | "global-parameters" => {
                max.min(SETTING_BYTES_MAX)
            }
            "lepus" if path.ends_with("/route-test") => max.min(SETTING_BYTES_MAX),
            "users" if path.ends_with("/bulk-delete") => max.min(SETTING_BYTES_MAX),
            _ => max.min(FREE_BODY_BYTES_MAX),
        }
    }

    async fn answer(
        self: &Arc<Desk>,
        head: &axum::http::request::Parts,
        body: Body,
        origin: &Origin,
    ) -> Response {
        let whole = head.uri.path();
        let Some(path) = whole.strip_prefix(self.settings.path_prefix.as_str()) else {
            return write(failure(404, "Object Not Found", "Not Found"));
        };
        if matches!(path, "" | "/") {
            return text("lepus: the management API is below /api\n");
        }
        if path != "/api" && !path.starts_with("/api/") {
            return write(failure(404, "Object Not Found", "Not Found"));
        }
        let Some(api) = self.api.get() else {
            return write(failure(503, "service_unavailable", "the broker starts"));
        };
        let header = |name: &HeaderName| {
            let value = head.headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let mut request = Request {
            method: head.method.as_str().to_owned(),
            path: path.to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: Vec::new(),
            caller: Caller::Client(self.client(head, origin)),
            reason: header(&HeaderName::from_static("x-reason")),
            vhost: header(&HeaderName::from_static("x-vhost")),
            known_tag: header(&header::IF_NONE_MATCH),
        };
        let declared = head.headers.get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let has_body =
            declared.unwrap_or(0) > 0 || head.headers.contains_key(header::TRANSFER_ENCODING);
        // What it counts is given back with the answer.
        let mut body_taken = None;
        if has_body {
            let is_login = api.is_login_by_body(&request);
            let most = self.body_bytes_max(path);
            if declared.is_some_and(|bytes| bytes > most) {
                return write(too_large(most));
            }
            let is_large = !is_login && declared.is_none_or(|bytes| bytes > FREE_BODY_BYTES_MAX);
            if is_large {
                let (api, head) = (Arc::clone(api), request.clone());
                let checked = tokio::task::spawn_blocking(move || api.check(&head)).await;
                match checked {
                    Ok(Ok(())) => {}
                    Ok(Err(reply)) => return write(reply),
                    Err(_) => return write(broken()),
                }
            }
            match body::read(body, most, &self.large_bodies).await {
                Ok(taken) => request.body = body_taken.insert(taken).take(),
                Err(NotTaken::TooLarge) => return write(too_large(most)),
                Err(NotTaken::Busy) => return write(busy().into_reply()),
                Err(NotTaken::TooLate) => {
                    let seconds = BODY_TIMEOUT.as_secs();
                    let reason = format!("the body did not come within {seconds} s");
                    return write(failure(408, "timeout", &reason));
                }
            }
        }
        let places = self.places(path);
        let turn =
            match tokio::time::timeout(TURN_TIMEOUT, Arc::clone(places).acquire_owned()).await {
                Ok(Ok(permit)) => permit,
                _ => return write(busy().into_reply()),
            };
        let api = Arc::clone(api);
        let (start, started) = oneshot::channel();
        let address = match &request.caller {
            Caller::Client(client) => client.peer.ip().to_canonical(),
            Caller::Operator => unreachable!("the operator does not come by HTTP"),
        };
        let wants_gzip = gzip::is_wanted(&head.headers);
        let answer = Answer::new(self.long_answers.clone(), address, turn, start, wants_gzip);
        let mut answered = tokio::task::spawn_blocking(move || {
            let reply = api.answer_to(&request, Some(&answer));
            answer.end(reply)
        });
        tokio::select! {
            biased;
            Ok(pieces) = started => write_pieces(Reply::empty(200), Some(pieces)),
            answered = &mut answered => match answered {
                Ok((reply, pieces)) => write_pieces(reply, pieces),
                Err(_) => write(broken()),
            },
        }
    }
}

/// The secret in the cookie of a session; the first of several with that name.
fn session_of(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(|line| line.split(';'));
    cookies.find_map(|one| match one.trim().split_once('=') {
        Some((COOKIE, secret)) => Some(secret.to_owned()),
        _ => None,
    })
}

fn busy() -> Failure {
    Failure::busy("too many requests at a time; try again")
}

/// Stands for an address where there is none; nothing is permitted to it that is not to everybody.
fn nobody() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
}

fn failure(status: u16, error: &str, reason: &str) -> Reply {
    let body = json!({"error": error, "reason": reason});
    Reply { status, headers: Vec::new(), body: Some(body) }
}

fn too_large(most: usize) -> Reply {
    let reason = format!("Exceeded HTTP request body size limit of {most} bytes");
    failure(400, "bad_request", &reason)
}

fn broken() -> Reply {
    failure(500, "internal_error", "the request could not be answered")
}

fn text(text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn write(reply: Reply) -> Response {
    let body = reply.body.as_ref().map(|body| Body::from(body.to_string()));
    write_parts(reply, body)
}

fn write_pieces(reply: Reply, pieces: Option<Pieces>) -> Response {
    let is_gzip = pieces.as_ref().is_some_and(Pieces::is_gzip);
    let mut response = write_parts(reply, pieces.map(Body::new));
    if is_gzip {
        gzip::mark(response.headers_mut());
    }
    response
}

/// Says that the body is JSON.
fn with_body(mut response: Response) -> Response {
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn write_parts(reply: Reply, body: Option<Body>) -> Response {
    let mut response = match body {
        Some(body) => with_body(Response::new(body)),
        None => Response::new(Body::empty()),
    };
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    for (name, value) in reply.headers {
        // A value that no header can hold is left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Whether a page of another site can make a browser send this only after it has asked whether the site may: then it sends
/// no login of its own unless that is allowed.
fn is_asked_for_before(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    headers.contains_key("x-lepus-request")
        || kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// Where a request's script comes from.
enum Origin {
    /// From nowhere, or from here.
    Own,
    /// From a site that is allowed, and whether with the browser's credentials.
    Allowed(HeaderValue, bool),
    /// From another one, whose script cannot read the answer; it changes nothing.
    Unread,
    /// From another one, and it may change something.
    Foreign,
}

impl Origin {
    /// Whether what comes from this machine is to be taken for it: a site that only `*` allows may be anybody's.
    fn is_trusted(&self) -> bool {
        !matches!(self, Origin::Allowed(_, false))
    }

    fn of(settings: &Settings, headers: &HeaderMap, method: &Method) -> Origin {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let origin = text(header::ORIGIN);
        let is_safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let is_foreign_site = matches!(
            text(HeaderName::from_static("sec-fetch-site")),
            Some("cross-site" | "same-site")
        );
        let Some(origin) = origin else {
            return if is_foreign_site && !is_safe { Origin::Foreign } else { Origin::Own };
        };
        let host = origin.split_once("://").map(|(_, host)| host);
        if host.is_some() && host == text(header::HOST) && !is_foreign_site {
            return Origin::Own;
        }
        let is_listed =
            origin != "null" && settings.allowed_origins.iter().any(|one| one == origin);
        let is_any = origin != "null" && settings.allowed_origins.iter().any(|one| one == "*");
        match HeaderValue::from_str(origin) {
            Ok(value) if is_listed || (is_any && (is_safe || is_asked_for_before(headers))) => {
                Origin::Allowed(value, is_listed)
            }
            _ if is_safe => Origin::Unread,
            _ => Origin::Foreign,
        }
    }

    fn allow(&self, answer: &mut HeaderMap, request: &HeaderMap) {
        let Origin::Allowed(origin, has_credentials) = self else { return };
        answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if *has_credentials {
            let yes = HeaderValue::from_static("true");
            answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
        }
        if let Some(allowed) = answer.get(header::ALLOW).cloned() {
            answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allowed);
            answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("1800"));
            if let Some(asked) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
                answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
            }
        }
    }
}
