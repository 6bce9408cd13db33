//! Where a client publishes a message to, and how.

use std::collections::BTreeSet;

use lepus_amqp::properties::Properties;
use lepus_base::Rng;

use crate::oracle::{ChannelId, Oracle};
use crate::plan::{Kind, Plan};
use crate::routing::{self, Address, Routes};

/// Where a message is to go, and where that must lead.
pub(super) struct Goal {
    pub(super) exchange: String,
    pub(super) key: String,
    pub(super) address: Address,
    pub(super) routes: Routes,
    /// The exchange of a channel that binds and unbinds queues.
    pub(super) toggled: Option<usize>,
    /// Whether the exchange holds it back.
    pub(super) delayed: bool,
}

impl Goal {
    fn to(exchange: &str, key: &str, routes: Routes) -> Goal {
        Goal {
            exchange: exchange.to_owned(),
            key: key.to_owned(),
            address: Address::default(),
            routes,
            toggled: None,
            delayed: false,
        }
    }

    /// Something that a channel may publish to; in a transaction routes are found later.
    pub(super) fn random(
        rng: &mut Rng,
        plan: &Plan,
        oracle: &Oracle,
        (channel, is_tx): (ChannelId, bool),
    ) -> Goal {
        let certain: Vec<usize> = (0..oracle.toggled.len())
            .filter(|&place| !is_tx && oracle.toggled[place].is_certain_for(channel))
            .collect();
        match rng.below(12) {
            10 | 11 if !certain.is_empty() => {
                let place = certain[rng.below(certain.len() as u64) as usize];
                let exchange = &oracle.toggled[place];
                let routes = Routes { certain: exchange.bound.clone(), choices: Vec::new() };
                Goal { toggled: Some(place), ..Goal::to(&exchange.exchange, "any", routes) }
            }
            0 => Goal::to("", "nowhere", Routes::default()),
            1..6 if !plan.exchanges.is_empty() => {
                let place = rng.below(plan.exchanges.len() as u64) as usize;
                let mut address = Address::random(rng);
                let delayed = plan.exchanges[place].delays && rng.chance(3, 4);
                if delayed {
                    let delay = 1 + rng.below(routing::DELAY_MILLIS_MAX);
                    address.headers.insert("x-delay", delay as i32);
                }
                let routes = routing::route(&plan.exchanges, place, &address);
                let goal = Goal::to(&plan.exchanges[place].name, &address.key, routes);
                Goal { address, delayed, ..goal }
            }
            _ => Goal::queue(rng, plan),
        }
    }

    /// A queue, by its name. So may another one get a copy.
    fn queue(rng: &mut Rng, plan: &Plan) -> Goal {
        let publishable: Vec<usize> =
            (0..plan.queues.len()).filter(|&place| plan.queues[place].kind != Kind::Dead).collect();
        let mut any = || publishable[rng.below(publishable.len() as u64) as usize];
        let (place, other) = (any(), any());
        let mut goal = Goal::to("", &plan.queues[place].name, Routes::default());
        goal.routes.certain = BTreeSet::from([place]);
        if rng.chance(1, 20) {
            goal.routes.certain.insert(other);
            let name = plan.queues[other].name.clone();
            match rng.chance(1, 2) {
                true => goal.address.copies.push(name),
                false => goal.address.hidden.push(name),
            }
        }
        goal
    }
}

/// Properties that say how long a message is kept, and how urgent it is.
pub(super) fn random_properties(rng: &mut Rng) -> Properties {
    let mut properties = Properties::default();
    if rng.chance(1, 2) {
        properties.delivery_mode = Some(1 + rng.below(2) as u8);
    }
    if rng.chance(1, 4) {
        properties.priority = Some(rng.below(8) as u8);
    }
    properties
}
