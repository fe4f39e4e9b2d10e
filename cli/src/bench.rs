use crate::args::Bench;
use crate::error::Result;
pub(crate) fn run(_args: &Bench) -> Result<()> {
    Ok(())
}
