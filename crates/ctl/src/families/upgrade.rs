//! Before and after an upgrade.

use super::node::change;
use crate::api::path;
use crate::command::{Call, Command, Group};
use crate::failure::Failure;
use crate::output::Output;
use crate::program::Program;

const UPGRADE: &[Program] = &[Program::Upgrade];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("await_online_quorum_plus_one", Group::Upgrade, (0, 0), await_quorum)
        .told("", "Waits until no queue would lose its quorum with this node; a single node has none to lose")
        .of(UPGRADE)
        .calls("GET /api/health/checks/node-is-quorum-critical"),
    Command::new("await_online_synchronized_mirror", Group::Upgrade, (0, 0), await_mirror)
        .told("", "Does not apply: there are no mirrored queues")
        .of(UPGRADE),
    Command::new("drain", Group::Upgrade, (0, 0), drain)
        .told("", "Puts the node in maintenance mode. Such nodes will not serve any client traffic")
        .of(UPGRADE)
        .banner(
            "Will put node {node} into maintenance mode. The node will no longer serve any client traffic!",
        )
        .calls("POST /api/lepus/ctl/lifecycle"),
    Command::new("post_upgrade", Group::Upgrade, (0, 0), post_upgrade)
        .told("", "Runs post-upgrade tasks")
        .of(UPGRADE)
        .banner("Executing post upgrade tasks...\nRebalancing queue masters...")
        .calls("POST /api/rebalance/queues"),
    Command::new("revive", Group::Upgrade, (0, 0), revive)
        .told("", "Puts the node out of maintenance and into regular operating mode")
        .of(UPGRADE)
        .banner(
            "Will put node {node} back into regular operating mode. The node will again serve client traffic and host \
             primary queue replicas.",
        )
        .calls("POST /api/lepus/ctl/lifecycle"),
];

const ALONE: &str =
    "Target node seems to be the only one in a single node cluster, the command does not apply";

fn await_quorum(call: &mut Call<'_>) -> Result<Output, Failure> {
    let seconds = call.options.timeout().unwrap_or(120);
    call.say(&format!(
        "Will wait for a quorum + 1 of nodes to be online for all quorum queues for {seconds} seconds..."
    ));
    call.wait_until(seconds, |call| {
        let asked = path(&["health", "checks", "node-is-quorum-critical"]);
        Ok(call.ask("GET", &asked, None)?.is_success())
    })?;
    Ok(Output::Text(ALONE.to_owned()))
}

fn await_mirror(call: &mut Call<'_>) -> Result<Output, Failure> {
    let seconds = call.options.timeout().unwrap_or(120);
    call.say(&format!(
        "Will wait for a synchronised mirror be online for all classic mirrored queues for {seconds} seconds..."
    ));
    Ok(Output::Text(ALONE.to_owned()))
}

fn drain(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "drain")
}

fn revive(call: &mut Call<'_>) -> Result<Output, Failure> {
    change(call, "revive")
}

fn post_upgrade(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.send("POST", &["rebalance", "queues"], None)?;
    Ok(Output::Nothing)
}
