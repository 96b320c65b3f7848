//! `eyrie topo`: networks, what a substitution does to a program's messages, and which spare costs
//! least; what a job sends; and what hosts get of each other. What is said of networks comes from
//! `eyrie-topo`; here files are read and results are told.

pub mod args;
mod input;
pub mod measure;
mod place;
mod predict;
pub mod probe;
mod show;
mod traffic;

use self::args::{Action, Topo};
use eyrie_terminal::Failure;

pub fn topo(args: &Topo) -> Result<i32, Failure> {
    match &args.action {
        Action::Show(show) => show::show(show),
        Action::Predict(predict) => predict::predict(predict),
        Action::Place(place) => place::place(place),
        Action::Traffic(traffic) => traffic::traffic(traffic),
        Action::Probe(probe) => probe::probe(probe),
    }
}
