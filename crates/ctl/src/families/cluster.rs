//! Clusters: one node is all there is, and says so.

use crate::command::{Call, Command, Group, MANY};
use crate::failure::{Failure, UNAVAILABLE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::json;

const fn switch(name: &'static str, about: &'static str) -> Flag {
    Flag { name, letter: None, value: Follows::Switch, default: "", about }
}

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("change_cluster_node_type", Group::Cluster, (1, 1), refused)
        .told("<disc | ram>", "Refused: there are no clusters yet"),
    Command::new("force_boot", Group::Cluster, (0, 0), refused)
        .told("", "Refused: there are no clusters yet"),
    Command::new("force_reset", Group::Cluster, (0, 0), refused)
        .told("", "Refused: stop the broker and remove its data directory instead"),
    Command::new("forget_cluster_node", Group::Cluster, (1, 1), refused)
        .told("[--offline] <existing_cluster_member_node>", "Refused: there are no clusters yet")
        .flags(&[switch("offline", "of a stopped node")])
        .banner("Removing node {0} from the cluster"),
    Command::new("join_cluster", Group::Cluster, (1, 1), refused)
        .told("[--disc|--ram] <existing_cluster_member>", "Refused: there are no clusters yet")
        .flags(&[switch("disc", "as a disc node"), switch("ram", "as a RAM node")])
        .banner("Clustering node {node} with {0}"),
    Command::new("rename_cluster_node", Group::Cluster, (2, MANY), refused).told(
        "<oldnode1> <newnode1> [oldnode2] [newnode2] ...",
        "Refused: there are no clusters yet",
    ),
    Command::new("reset", Group::Nodes, (0, 0), refused)
        .told("", "Refused: stop the broker and remove its data directory instead")
        .banner("Resetting node {node} ..."),
    Command::new("set_cluster_name", Group::Configuration, (1, 1), set_name)
        .told("<name>", "Sets the cluster name")
        .banner("Setting cluster name to {0} ...")
        .calls("PUT /api/cluster-name"),
    Command::new("update_cluster_nodes", Group::Cluster, (1, 1), refused)
        .told("<seed_node>", "Refused: there are no clusters yet"),
];

fn refused(call: &mut Call<'_>) -> Result<Output, Failure> {
    let text = match call.command.name {
        "reset" | "force_reset" => {
            "This broker is not reset while it runs: stop it and remove its data directory"
        }
        _ => "This broker has one node: there are no clusters yet",
    };
    Err(Failure::new(UNAVAILABLE, text))
}

fn set_name(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.send("PUT", &["cluster-name"], Some(&json!({"name": call.word(0)})))?;
    Ok(Output::Nothing)
}
