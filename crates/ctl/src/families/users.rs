//! Users, their passwords, tags and limits.

use crate::command::{Call, Command, Group, LOOKING, MANY, json, listing_of, plain, tags};
use crate::failure::{DATA, Failure, SOFTWARE, UNAVAILABLE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::{Value, json};

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("add_user", Group::Users, (1, 2), add)
        .told(
            "<username> <password>",
            "Creates a new user in the internal database. This user will have no permissions for any virtual hosts by \
             default.",
        )
        .banner("Adding user \"{0}\" ...")
        .calls("GET, PUT /api/users/{user}"),
    Command::new("authenticate_user", Group::Users, (1, 2), authenticate)
        .told(
            "<username> <password>",
            "Attempts to authenticate a user. Exits with a non-zero code if authentication fails.",
        )
        .banner("Authenticating user \"{0}\" ...")
        .calls("POST /api/lepus/ctl/authenticate"),
    Command::new("change_password", Group::Users, (1, 2), change_password)
        .told("<username> <password>", "Changes the user password")
        .banner("Changing password for user \"{0}\" ...")
        .calls("GET, PUT /api/users/{user}"),
    Command::new("clear_password", Group::Users, (1, 1), clear_password)
        .told("<username>", "Clears (resets) password and disables password login for a user")
        .banner("Clearing password for user \"{0}\" ...")
        .calls("GET, PUT /api/users/{user}"),
    Command::new("clear_user_limits", Group::Users, (2, 2), clear_limits)
        .told("<username> <limit_type> | all", "Clears user connection/channel limits")
        .calls("DELETE /api/user-limits/{user}/{name}"),
    Command::new("delete_user", Group::Users, (1, 1), delete)
        .told(
            "<username>",
            "Removes a user from the internal database. Has no effect on users provided by external backends such as \
             LDAP",
        )
        .banner("Deleting user \"{0}\" ...")
        .calls("DELETE /api/users/{user}"),
    Command::new("hash_password", Group::Users, (0, 1), hash)
        .told("[<password>]", "Hashes a plaintext password")
        .calls("GET /api/auth/hash_password/{password}"),
    Command::new("list_user_limits", Group::Users, (0, 0), list_limits)
        .told("[--user <username>] [--global]", "Displays configured user limits")
        .of(LOOKING)
        .flags(&[
            Flag {
                name: "user",
                letter: None,
                value: Follows::Text,
                default: "guest",
                about: "whose limits; guest's when left out",
            },
            Flag {
                name: "global",
                letter: None,
                value: Follows::Switch,
                default: "",
                about: "list limits of all users",
            },
        ])
        .calls("GET /api/user-limits, /api/users/{user}, /api/user-limits/{user}")
        .table(&[plain("user"), json("limits").at("value")], &["user", "limits"]),
    Command::new("list_users", Group::Users, (0, 0), list)
        .told("[--no-table-headers] [--timeout <timeout>]", "List user names and tags")
        .of(LOOKING)
        .banner("Listing users ...")
        .calls("GET /api/users")
        .table(&[plain("user").at("name"), tags("tags")], &["user", "tags"]),
    Command::new("set_user_limits", Group::Users, (2, 2), set_limits)
        .told("<username> <definition>", "Sets user limits")
        .banner("Setting user limits to \"{1}\" for user \"{0}\" ...")
        .calls("PUT /api/user-limits/{user}/{name}"),
    Command::new("set_user_tags", Group::Users, (1, MANY), set_tags)
        .told("<username> <tag> [...]", "Sets user tags")
        .banner("Setting tags for user \"{0}\" to [{*}] ...")
        .calls("GET, PUT /api/users/{user}"),
];

fn named(call: &Call<'_>) -> Result<String, Failure> {
    match call.word(0) {
        name if name.is_empty() => {
            Err(Failure::argument(DATA, "Bad argument: user cannot be an empty string"))
        }
        name => Ok(name),
    }
}

/// What a password becomes in a request: none may log in with an empty one.
fn secret(password: &str) -> (&'static str, Value) {
    match password {
        "" => ("password_hash", json!("")),
        password => ("password", json!(password)),
    }
}

fn add(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let password = call.password(1, DATA)?;
    if call.find(&["users", &name])?.is_some() {
        return Err(Failure::new(SOFTWARE, format!("User \"{name}\" already exists")));
    }
    let (key, secret) = secret(&password);
    call.send("PUT", &["users", &name], Some(&json!({key: secret, "tags": ""})))?;
    let note = "Done. Don't forget to grant the user permissions to some virtual hosts! See 'rabbitmqctl help \
                set_permissions' to learn more.";
    Ok(Output::Note(note.to_owned()))
}

fn authenticate(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let password = call.password(1, SOFTWARE)?;
    let body = json!({"name": name, "password": password});
    let answer = call.send("POST", &["lepus", "ctl", "authenticate"], Some(&body))?;
    match answer["ok"] == true {
        true => Ok(Output::Text("Success".to_owned())),
        false => {
            let text = format!(
                "Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
            );
            Err(Failure::new(DATA, text))
        }
    }
}

/// Sets a user's key and keeps what else the API would take away.
fn change(call: &mut Call<'_>, name: &str, key: &str, value: Value) -> Result<(), Failure> {
    let missing = Call::no_user(name);
    let user = call.find(&["users", name])?.ok_or(missing)?;
    let mut body = json!({"tags": user["tags"]});
    if key == "tags" {
        for kept in ["password_hash", "hashing_algorithm"] {
            body[kept] = user[kept].clone();
        }
    }
    body[key] = value;
    call.send("PUT", &["users", name], Some(&body)).map(|_| ())
}

fn change_password(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let password = call.password(1, SOFTWARE)?;
    let (key, secret) = secret(&password);
    change(call, &name, key, secret)?;
    Ok(Output::Nothing)
}

fn clear_password(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let cleared = change(call, &name, "password_hash", json!(""));
    cleared.map_err(|failure| no_such_user(&name, failure))?;
    Ok(Output::Nothing)
}

/// The form in which some commands say that a user is not there.
fn no_such_user(name: &str, failure: Failure) -> Failure {
    match failure == Call::no_user(name) {
        true => Failure::new(UNAVAILABLE, format!("{{:no_such_user, \"{name}\"}}")),
        false => failure,
    }
}

fn set_tags(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let tags = call.words[1..].to_vec();
    change(call, &name, "tags", json!(tags))?;
    Ok(Output::Nothing)
}

fn delete(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let reply = call.ask("DELETE", &crate::api::path(&["users", &name]), None)?;
    match reply.status {
        404 => Err(Call::no_user(&name)),
        _ if reply.is_success() => Ok(Output::Nothing),
        _ => Err(call.refusal(&reply)),
    }
}

fn hash(call: &mut Call<'_>) -> Result<Output, Failure> {
    let password = call.password(0, SOFTWARE)?;
    call.say("Will hash the password");
    let answer = call.send("GET", &["auth", "hash_password", &password], None)?;
    Ok(Output::Text(answer["ok"].as_str().unwrap_or_default().to_owned()))
}

fn list(call: &mut Call<'_>) -> Result<Output, Failure> {
    let users = call.get(&["users"])?;
    listing_of(call, users.as_array().map_or(&[][..], Vec::as_slice))
}

/// Fails where the user is not there.
fn check_user(call: &mut Call<'_>, name: &str) -> Result<(), Failure> {
    match call.find(&["users", name])? {
        Some(_) => Ok(()),
        None => Err(no_such_user(name, Call::no_user(name))),
    }
}

fn list_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    if call.options.has("global") {
        call.say("Listing limits for all users ...");
        let limits = call.get(&["user-limits"])?;
        let mut output = listing_of(call, limits.as_array().map_or(&[][..], Vec::as_slice))?;
        if let Output::Rows(rows) = &mut output {
            rows.ends_empty = true;
        }
        return Ok(output);
    }
    let name = call.flag("user");
    call.say(&format!("Listing limits for user \"{name}\" ..."));
    check_user(call, &name)?;
    let limits = call.find(&["user-limits", &name])?.unwrap_or_default();
    let value = limits.get(0).and_then(|limits| limits.get("value"));
    Ok(Output::Text(value.unwrap_or(&json!({})).to_string()))
}

fn set_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = named(call)?;
    let limits = super::parameters::object(&call.word(1))?;
    check_user(call, &name)?;
    for (key, value) in limits {
        call.send("PUT", &["user-limits", &name, &key], Some(&json!({ "value": value })))?;
    }
    Ok(Output::Nothing)
}

fn clear_limits(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (name, kind) = (named(call)?, call.word(1));
    let kinds: &[&str] = match kind.as_str() {
        "all" => {
            call.say(&format!("Clearing all limits for user \"{name}\" ..."));
            &["max-connections", "max-channels"]
        }
        kind => {
            call.say(&format!("Clearing \"{kind}\" limit for user \"{name}\" ..."));
            &[kind]
        }
    };
    check_user(call, &name)?;
    for kind in kinds {
        call.send("DELETE", &["user-limits", &name, kind], None)?;
    }
    Ok(Output::Nothing)
}
