//! How much the directory may hold, whoever declares it.

use crate::accounts::Accounts;
use crate::change::{BindingChange, Change};
use crate::parameters::Parameters;
use crate::policies::Policies;
use crate::router::{FilterLimits, Outlet, is_filtered};
use crate::size::{Kind, arguments_of, kind_of};
use crate::topology::Topology;
use alloc::format;
use alloc::string::String;
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Of each limit one part in so many is divided among the virtual hosts: so much each of them may
/// have, however much the others take.
const KEPT_PART: u64 = 10;

/// What all virtual hosts together may hold. A virtual host's own limit comes on top. A tenth of the
/// queues, exchanges and bindings is kept for the virtual hosts in equal shares.
///
/// What is over a limit already, because it was lowered between two starts, stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Queues.
    pub queues_max: u64,
    /// Exchanges, those that every virtual host begins with included.
    pub exchanges_max: u64,
    /// Bindings, those to the default exchange not counted.
    pub bindings_max: u64,
    /// Arguments of one binding.
    pub binding_arguments_max: u64,
    /// Bytes of the arguments of one queue, exchange or binding, as they are sent.
    pub arguments_bytes_max: u64,
    /// Bytes of all arguments in one virtual host.
    pub vhost_arguments_bytes_max: u64,
    /// Bindings of one exchange that have a filter.
    pub exchange_filters_max: u64,
    /// Bindings of one virtual host that have a filter.
    pub vhost_filters_max: u64,
    /// Bytes that the filters of one exchange's bindings take on a shard, about.
    pub exchange_filter_bytes_max: usize,
    /// Distinct fields that the filters of one exchange's bindings name.
    pub exchange_filter_fields_max: usize,
    /// Steps of some ten nanoseconds that the filters of one exchange's bindings may take of a message, beside reading
    /// it, as far as messages were sampled: above it there come only further ones that are looked up.
    pub exchange_filter_steps_max: u32,
    /// Policies and operator policies.
    pub policies_max: u64,
    /// Policies and operator policies of one virtual host.
    pub vhost_policies_max: u64,
    /// Parameters, those of the whole broker included.
    pub parameters_max: u64,
    /// Bytes of the JSON text of one parameter.
    pub parameter_bytes_max: u64,
}

impl Capacity {
    /// Steps of filters that are taken for a microsecond.
    pub const FILTER_STEPS_PER_MICRO: u32 = 100;
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity {
            queues_max: 1_000_000,
            exchanges_max: 100_000,
            bindings_max: 5_000_000,
            binding_arguments_max: 256,
            arguments_bytes_max: 16 << 10,
            vhost_arguments_bytes_max: 256 << 20,
            exchange_filters_max: 10_000,
            vhost_filters_max: 100_000,
            exchange_filter_bytes_max: 32 << 20,
            exchange_filter_fields_max: 1_000,
            exchange_filter_steps_max: 200 * Capacity::FILTER_STEPS_PER_MICRO,
            policies_max: 10_000,
            vhost_policies_max: 1_000,
            parameters_max: 10_000,
            parameter_bytes_max: 64 << 10,
        }
    }
}

/// What was decided and is not applied yet.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    queues: u64,
    exchanges: u64,
    bindings: u64,
    policies: u64,
    parameters: u64,
}

impl Reserved {
    /// The number that a change adds to.
    fn of(&mut self, change: &Change) -> Option<&mut u64> {
        match change {
            Change::QueueDeclared(_) => Some(&mut self.queues),
            Change::ExchangeDeclared(_) => Some(&mut self.exchanges),
            Change::Bound(_) => Some(&mut self.bindings),
            Change::PolicySet { .. } => Some(&mut self.policies),
            Change::ParameterSet { .. } | Change::GlobalParameterSet { .. } => {
                Some(&mut self.parameters)
            }
            _ => None,
        }
    }
}

/// How much may come, beside what is decided already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    capacity: Capacity,
    reserved: Reserved,
}

impl Budget {
    /// Sets how much there may be.
    pub(crate) fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    /// Whether the filters of an exchange's bindings take so many steps of a message that not every further one may come.
    pub(crate) fn is_too_much(&self, steps: Option<u32>) -> bool {
        steps.is_some_and(|steps| steps > self.capacity.exchange_filter_steps_max)
    }

    /// Counts what was checked and is to be applied later.
    pub(crate) fn reserve(&mut self, change: &Change) {
        if let Some(count) = self.reserved.of(change) {
            *count += 1;
        }
    }

    /// The opposite, right before the change is applied or given up.
    pub(crate) fn release(&mut self, change: &Change) {
        if let Some(count) = self.reserved.of(change) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether one more of what `change` adds may be there, with its arguments.
    ///
    /// # Errors
    /// 406 with the limit.
    pub(crate) fn check(
        &self,
        change: &Change,
        accounts: &Accounts,
        topology: &Topology,
    ) -> Result<(), Refusal> {
        let Some(there) = topology.count_of(change) else { return Ok(()) };
        let (what, plural, reserved, limit) = match change {
            Change::QueueDeclared(info) => {
                let what = format!("declare queue '{}'", info.name());
                (what, "queue", self.reserved.queues, self.capacity.queues_max)
            }
            Change::ExchangeDeclared(info) => {
                let what = format!("declare exchange '{}'", info.name);
                (what, "exchange", self.reserved.exchanges, self.capacity.exchanges_max)
            }
            Change::Bound(binding) => {
                let what = format!("bind to exchange '{}'", binding.source);
                (what, "binding", self.reserved.bindings, self.capacity.bindings_max)
            }
            _ => return Ok(()),
        };
        let there = there as u64 + reserved;
        let refuse = |text| Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        if there >= limit {
            return refuse(format!(
                "cannot {what}: {plural} limit of the broker ({limit}) is reached"
            ));
        }
        if !leaves_shares(change, there, limit, accounts, topology) {
            return refuse(format!(
                "cannot {what}: what is left of the {plural} limit of the broker ({limit}) is kept \
                 for other virtual hosts"
            ));
        }
        let (vhost, bytes) = arguments_of(change).unwrap_or_default();
        let limit = self.capacity.arguments_bytes_max;
        if bytes as u64 > limit {
            return refuse(format!(
                "cannot {what}: its arguments take {bytes} bytes, and {limit} is the limit"
            ));
        }
        if let Change::Bound(binding) = change {
            let count = binding.arguments.as_ref().iter().count();
            let limit = self.capacity.binding_arguments_max;
            if count as u64 > limit {
                return refuse(format!(
                    "cannot {what}: the binding has {count} arguments, and {limit} is the limit"
                ));
            }
        }
        if let Change::Bound(binding) = change
            && let Err(why) = self.check_filter(binding, accounts, topology)
        {
            return refuse(format!("cannot {what}: {why}"));
        }
        let limit = self.capacity.vhost_arguments_bytes_max;
        if bytes > 0 && topology.size().arguments(vhost) + bytes as u64 > limit {
            let vhost = accounts.vhost_name(vhost);
            return refuse(format!(
                "cannot {what}: arguments in vhost '{vhost}' take {limit} bytes at most"
            ));
        }
        Ok(())
    }

    /// Whether the filter of one more binding may be there, if it has one.
    ///
    /// # Errors
    /// In words.
    fn check_filter(
        &self,
        binding: &BindingChange,
        accounts: &Accounts,
        topology: &Topology,
    ) -> Result<(), String> {
        let outlet = topology.outlet(binding.vhost, &binding.source);
        if is_filtered(binding.arguments.as_ref()) {
            let of_exchange = outlet.map_or(0, Outlet::filter_count);
            let of_vhost = topology.size().holding(binding.vhost, Kind::Filter);
            let limit = self.capacity.exchange_filters_max;
            if limit == 0 {
                return Err(
                    "filters are switched off here; limits.exchange_filters_max says how many there may be".into()
                );
            }
            if of_exchange as u64 >= limit {
                return Err(format!("{limit} of its bindings have a filter"));
            }
            let limit = self.capacity.vhost_filters_max;
            if of_vhost >= limit {
                let vhost = accounts.vhost_name(binding.vhost);
                return Err(format!("{limit} bindings in vhost '{vhost}' have a filter"));
            }
        }
        let Some(outlet) = outlet else { return Ok(()) };
        let limits = FilterLimits {
            fields_max: self.capacity.exchange_filter_fields_max,
            bytes_max: self.capacity.exchange_filter_bytes_max,
        };
        let room = outlet.check_filter(&binding.filter, limits);
        room.map_err(|full| format!("its filters would have {full}"))?;
        let limit = self.capacity.exchange_filter_steps_max;
        match outlet.refuses(&binding.filter, limit) {
            None => Ok(()),
            Some(steps) => Err(format!(
                "its filters take {} µs of a message; above {} µs (limits.exchange_filter_micros_max) only such are \
                 taken as can be looked up (a field = or IN values, LIKE 'text%'): see 'lepus list filters'",
                micros(steps),
                micros(limit)
            )),
        }
    }

    /// Whether one more policy or parameter may be there, of its size. One that takes the place of another counts as
    /// one more only while it is not applied.
    ///
    /// # Errors
    /// 406 with the limit.
    pub(crate) fn check_settings(
        &self,
        change: &Change,
        policies: &Policies,
        parameters: &Parameters,
    ) -> Result<(), Refusal> {
        let refuse = |text| Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        let (what, is_new, bytes, bytes_max, counts) = match change {
            Change::PolicySet { vhost, scope, policy } => {
                let reserved = self.reserved.policies;
                let all = (policies.len() as u64 + reserved, self.capacity.policies_max);
                let own = policies.len_in(*vhost) as u64 + reserved;
                (
                    format!("set {} '{}'", scope.name(), policy.name()),
                    policies.find(*vhost, *scope, policy.name()).is_none(),
                    policy.definition().bytes().len(),
                    self.capacity.arguments_bytes_max,
                    [all, (own, self.capacity.vhost_policies_max)],
                )
            }
            Change::ParameterSet { name, value, .. }
            | Change::GlobalParameterSet { name, value } => {
                let is_new = match change {
                    Change::ParameterSet { vhost, component, .. } => {
                        parameters.find(*vhost, component, name).is_none()
                    }
                    _ => parameters.find_global(name).is_none(),
                };
                let there = parameters.len() as u64 + self.reserved.parameters;
                (
                    format!("set parameter '{name}'"),
                    is_new,
                    value.len(),
                    self.capacity.parameter_bytes_max,
                    [(there, self.capacity.parameters_max); 2],
                )
            }
            _ => return Ok(()),
        };
        if bytes as u64 > bytes_max {
            return refuse(format!(
                "cannot {what}: it takes {bytes} bytes, and {bytes_max} is the limit"
            ));
        }
        match counts.into_iter().find(|(there, limit)| is_new && there >= limit) {
            Some((_, limit)) => refuse(format!("cannot {what}: there may be {limit} at most")),
            None => Ok(()),
        }
    }
}

/// Steps of filters in microseconds, rounded up.
fn micros(steps: u32) -> u32 {
    steps.div_ceil(Capacity::FILTER_STEPS_PER_MICRO)
}

/// Whether, with one more of what `change` adds beside those that are there, every other virtual
/// host can still have its share of `limit`.
fn leaves_shares(
    change: &Change,
    there: u64,
    limit: u64,
    accounts: &Accounts,
    topology: &Topology,
) -> bool {
    let kept = limit / KEPT_PART;
    if there < limit - kept {
        return true;
    }
    let Some((vhost, kind)) = kind_of(change) else { return true };
    let share = kept / (accounts.vhost_ids().len() as u64).max(1);
    if topology.size().holding(vhost, kind) < share {
        return true;
    }
    let others = accounts.vhost_ids().filter(|other| *other != vhost);
    let lacking = others.map(|other| share.saturating_sub(topology.size().holding(other, kind)));
    there + lacking.sum::<u64>() < limit
}
