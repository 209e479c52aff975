//! Executables for Windows that hold nothing but what is read of them.

/// What one says of itself.
#[derive(Debug, Clone)]
pub struct FakeExe<'a> {
    pub machine: u16,
    pub product: &'a str,
    /// `None`: it has no version resource.
    pub version: Option<&'a str>,
    /// Bytes behind all else, to tell two apart.
    pub tail: &'a [u8],
}

impl FakeExe<'_> {
    /// The right one for this build.
    pub const RIGHT: Self =
        Self { machine: 0x8664, product: "podlink", version: Some(env!("CARGO_PKG_VERSION")), tail: b"" };

    pub fn bytes(&self) -> Vec<u8> {
        const HEADER: usize = 64;
        const OPTIONAL: usize = HEADER + 24;
        const OPTIONAL_SIZE: u16 = 240;
        const ADDRESS: u32 = 0x1000;
        const OFFSET: usize = 0x400;
        let resources = self.version.map_or_else(|| vec![0; 16], |version| resources(ADDRESS, self.product, version));
        let mut exe = vec![0; OFFSET];
        let mut put = |at: usize, bytes: &[u8]| exe[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"MZ");
        put(0x3c, &64_u32.to_le_bytes());
        put(HEADER, b"PE\0\0");
        put(HEADER + 4, &self.machine.to_le_bytes());
        put(HEADER + 6, &1_u16.to_le_bytes());
        put(HEADER + 20, &OPTIONAL_SIZE.to_le_bytes());
        put(OPTIONAL, &0x20b_u16.to_le_bytes());
        put(OPTIONAL + 68, &2_u16.to_le_bytes());
        put(OPTIONAL + 108, &16_u32.to_le_bytes());
        put(OPTIONAL + 112 + 8 * 2, &ADDRESS.to_le_bytes());
        let section = OPTIONAL + usize::from(OPTIONAL_SIZE);
        put(section, b".rsrc");
        let size = u32::try_from(resources.len()).unwrap().to_le_bytes();
        put(section + 8, &size);
        put(section + 12, &ADDRESS.to_le_bytes());
        put(section + 16, &size);
        put(section + 20, &u32::try_from(OFFSET).unwrap().to_le_bytes());
        exe.extend(resources);
        exe.extend_from_slice(self.tail);
        exe
    }
}

/// A tree of three levels with one leaf: kind 16, name 1, language 1033.
fn resources(address: u32, product: &str, version: &str) -> Vec<u8> {
    const IS_FOLDER: u32 = 1 << 31;
    let mut tree = Vec::new();
    for (id, below) in [(16, IS_FOLDER + 24), (1, IS_FOLDER + 48), (1033, 72)] {
        tree.extend([0; 14]);
        tree.extend(1_u16.to_le_bytes());
        tree.extend(u32::to_le_bytes(id));
        tree.extend(u32::to_le_bytes(below));
    }
    let mut text = Vec::new();
    for (key, value) in [("ProductName", product), ("ProductVersion", version)] {
        for word in [key, value] {
            text.extend(word.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
            text.resize(text.len().next_multiple_of(4), 0);
        }
    }
    tree.extend((address + 88).to_le_bytes());
    tree.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    tree.extend([0; 8]);
    tree.extend(text);
    tree
}
