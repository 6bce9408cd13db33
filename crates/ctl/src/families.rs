//! All commands, in families.

mod access;
mod checks;
mod cluster;
mod connections;
mod definitions;
mod eval;
mod lists;
mod node;
mod parameters;
mod plugins;
mod policies;
mod queues;
mod settings;
mod status;
mod teaching;
mod upgrade;
mod users;
mod vhosts;

pub use eval::KNOWN as KNOWN_EXPRESSIONS;

use crate::command::Command;

/// Every command of every program but `rabbitmqadmin`.
#[must_use]
pub fn all() -> Vec<&'static Command> {
    let families: [&'static [Command]; 18] = [
        teaching::COMMANDS,
        node::COMMANDS,
        cluster::COMMANDS,
        users::COMMANDS,
        access::COMMANDS,
        lists::COMMANDS,
        status::COMMANDS,
        checks::COMMANDS,
        parameters::COMMANDS,
        policies::COMMANDS,
        vhosts::COMMANDS,
        settings::COMMANDS,
        definitions::COMMANDS,
        connections::COMMANDS,
        eval::COMMANDS,
        queues::COMMANDS,
        plugins::COMMANDS,
        upgrade::COMMANDS,
    ];
    families.into_iter().flatten().collect()
}
