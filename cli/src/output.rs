//! Files that commands write.

use crate::error::Result;
use hopper_proj::io::output::{check_apart, check_writable, write_whole};
use hopper_proj::plan::measured::TABLE_VARIABLE;
use std::path::{Path, PathBuf};

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    Ok(write_whole(path, text.as_bytes())?)
}

/// Fails where a file could not be written or is an input, before long work for it; harms nothing and leaves nothing.
/// The table that a variable names is an input of every command.
pub(crate) fn check<'a>(path: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let table = std::env::var_os(TABLE_VARIABLE).map(PathBuf::from);
    check_apart(path, inputs)?;
    check_apart(path, table.as_deref())?;
    Ok(check_writable(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_can_be_written_passes_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        write(&old, "text").unwrap();
        check(&old, []).unwrap();
        check(&new, [&*old, &*new]).unwrap();
        check(Path::new("relative"), []).unwrap();
        check(Path::new("/dev/null"), [Path::new("/dev/null")]).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "text");
        assert!(!new.exists());
        for bad in [folder.path(), &old.join("below"), &new.join("below")] {
            let message = check(bad, []).unwrap_err().to_string();
            assert!(message.contains(&bad.display().to_string()), "{message}");
        }
    }
}
