//! Sessions of browsers.

use super::super::context::Context;
use super::super::failure::Failure;
use super::super::request::{COOKIE, Caller, Client, Reply};
use super::super::sessions::{IDLE, LIFE, SessionInfo};
use serde_json::{Value, json};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The header that makes a browser keep a secret for so many seconds; none take it away.
fn cookie(client: &Client, secret: &str, seconds: u64) -> String {
    let path = if client.path.is_empty() { "/" } else { &client.path };
    let secure = if client.is_secure { "; Secure" } else { "" };
    format!("{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={seconds}{secure}")
}

/// Milliseconds since 1970 of a moment that was.
fn millis(at: Instant, now: Instant) -> u64 {
    let then = SystemTime::now().checked_sub(now.duration_since(at));
    let age = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
    age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

fn row(info: &SessionInfo, now: Instant, own: Option<&str>) -> Value {
    let begun = millis(info.begun, now);
    let ends = (LIFE.saturating_sub(now.duration_since(info.begun)))
        .min(IDLE.saturating_sub(now.duration_since(info.used)));
    json!({
        "id": info.id,
        "user": info.user,
        "peer_host": info.peer.ip().to_canonical().to_string(),
        "begun_at": begun,
        "used_at": millis(info.used, now),
        "ends_in": ends.as_secs(),
        "is_own": own == Some(&*info.id),
    })
}

/// `POST /lepus/session`
pub(crate) fn begin(context: &Context<'_>) -> Result<Reply, Failure> {
    let login = &context.login;
    let (Caller::Client(client), Some(user), Some(password)) =
        (&context.request.caller, &login.user, &login.password)
    else {
        return Err(Failure::bad_request("a session is for a user who has logged in over HTTP"));
    };
    let random = || context.api.broker.random().map_err(Failure::unavailable);
    let mut secret = [0; 32];
    secret[..16].copy_from_slice(&random()?);
    secret[16..].copy_from_slice(&random()?);
    let (id, now) = (random()?, Instant::now());
    let directory = context.directory();
    let who = (user.as_str(), password, client.peer);
    let begun = context.api.sessions.begin((secret, id), who, directory.accounts(), now);
    // Deleted since the login, or with another password.
    let (secret, info) = begun.ok_or_else(|| Failure::not_authorised("Not_Authorized"))?;
    let mut answer = super::fields(row(&info, now, Some(&info.id)));
    answer.insert("tags".to_owned(), json!(context.login.tags));
    let cookie = cookie(client, &secret, LIFE.as_secs());
    Ok(Reply::json(Value::Object(answer)).with("set-cookie", cookie))
}

/// `DELETE /lepus/session`
pub(crate) fn end(context: &Context<'_>) -> Result<Reply, Failure> {
    let (Caller::Client(client), Some(id)) = (&context.request.caller, &context.login.session)
    else {
        return Err(Failure::not_found());
    };
    context.api.sessions.end(id, |_| true);
    Ok(Reply::done().with("set-cookie", cookie(client, "", 0)))
}

/// Whether who asks may see and end a session.
fn may(context: &Context<'_>, info: &SessionInfo) -> bool {
    context.login.is_administrator() || context.login.user.as_ref() == Some(&info.user)
}

/// `GET /lepus/sessions`
pub(crate) fn list(context: &Context<'_>) -> Result<Reply, Failure> {
    let now = Instant::now();
    let all = context.api.sessions.list(context.directory().accounts(), now);
    let own = context.login.session.as_deref();
    let seen = all.iter().filter(|info| may(context, info));
    context.list_rows(seen.map(|info| row(info, now, own)).collect())
}

/// `DELETE /lepus/sessions/{i}`
pub(crate) fn revoke(context: &Context<'_>) -> Result<Reply, Failure> {
    match context.api.sessions.end(context.name(0), |info| may(context, info)) {
        true => Ok(Reply::done()),
        false => Err(Failure::not_found()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_the_api_alone_and_never_goes_in_clear_text_where_tls_is_spoken() {
        let client = |is_secure, path: &str| Client {
            peer: ([127, 0, 0, 1], 9).into(),
            is_local: true,
            is_secure,
            authorization: None,
            session: None,
            is_marked: false,
            path: path.to_owned(),
        };
        let always = "lepus_session=s; HttpOnly; SameSite=Strict";
        for (is_secure, path, shown) in [
            (false, "", "; Path=/; Max-Age=5"),
            (true, "", "; Path=/; Max-Age=5; Secure"),
            (true, "/broker", "; Path=/broker; Max-Age=5; Secure"),
        ] {
            assert_eq!(cookie(&client(is_secure, path), "s", 5), format!("{always}{shown}"));
        }
    }
}
