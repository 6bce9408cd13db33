//! What somebody wants to be told one by one.

use super::families::{CONSUMING, Family, PUBLISHING, Value};
use crate::api::Parameters;

/// A page that is wished for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// All that RabbitMQ tells one by one at `/metrics/per-object`, and the node's own figures.
    PerObject,
    /// `/metrics/detailed`: only these groups of families.
    Detailed {
        /// RabbitMQ's names of them; those that nobody knows mean nothing.
        groups: Vec<String>,
        /// Only queues, exchanges and virtual hosts of these; of all where it is empty.
        vhosts: Vec<String>,
    },
}

impl Wish {
    /// What a query of `/metrics/detailed` wishes for.
    ///
    /// # Errors
    /// In words, for an escape that is none.
    pub(crate) fn read(query: &str) -> Result<Wish, String> {
        let query = Parameters::read(query).map_err(|_| "the query is broken".to_owned())?;
        Ok(Wish::Detailed { groups: query.all("family"), vhosts: query.all("vhost") })
    }

    /// Whether a family is wished for.
    pub(super) fn has(&self, family: &Family) -> bool {
        match self {
            // The node's own are told as on the page of totals.
            Wish::PerObject => match family.value {
                Value::Node(_) | Value::Exchange(_) | Value::Vhost => false,
                // Totals over all channels have the same names.
                _ if [PUBLISHING, CONSUMING].contains(&family.group) => false,
                _ => family.group != "queue_consumer_count",
            },
            // It is a part of the other.
            Wish::Detailed { .. } if family.group == "queue_consumer_count" => {
                self.names(family.group) && !self.names("queue_metrics")
            }
            Wish::Detailed { .. } => self.names(family.group),
        }
    }

    fn names(&self, group: &str) -> bool {
        matches!(self, Wish::Detailed { groups, .. } if groups.iter().any(|wanted| wanted == group))
    }

    /// Whether something of queues is wished for, so that it is told what they are.
    pub(super) fn has_queues(&self) -> bool {
        let groups = ["queue_coarse_metrics", "queue_consumer_count", "queue_metrics"];
        *self == Wish::PerObject || groups.iter().any(|group| self.names(group))
    }

    /// Whether things of a virtual host are wished for.
    pub(super) fn has_vhost(&self, vhost: &str) -> bool {
        match self {
            Wish::PerObject => true,
            Wish::Detailed { vhosts, .. } => {
                vhosts.is_empty() || vhosts.iter().any(|wanted| wanted == vhost)
            }
        }
    }

    /// What names begin with.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Wish::PerObject => "rabbitmq_",
            Wish::Detailed { .. } => "rabbitmq_detailed_",
        }
    }

    /// The whole name of a family.
    pub(super) fn name_of(&self, family: &Family) -> String {
        let prefix = match family.value {
            _ if family.name.starts_with("lepus_") => "",
            Value::Exchange(_) | Value::Vhost => "rabbitmq_cluster_",
            _ => self.prefix(),
        };
        format!("{prefix}{}", family.name)
    }
}
