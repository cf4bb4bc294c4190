//! Words of which handles are made: short, plain, and hard to take amiss in any pair.

/// What comes first.
pub const QUALITIES: &[&str] = &[
    "able", "agile", "alert", "amber", "ample", "apt", "ashen", "autumn", "azure", "balmy", "basic", "beige", "blond",
    "blue", "bold", "brave", "breezy", "brief", "bright", "brisk", "bronze", "calm", "candid", "cheery", "chief",
    "civil", "clean", "clear", "clever", "cobalt", "cool", "copper", "coral", "cosmic", "cozy", "crisp", "cubic",
    "curly", "daily", "dapper", "daring", "dear", "deep", "deft", "dewy", "direct", "dotted", "dusky", "eager",
    "early", "earnest", "east", "easy", "elder", "equal", "even", "exact", "fabled", "fair", "famous", "fast", "fine",
    "firm", "first", "fleet", "floral", "fluent", "fond", "frank", "free", "fresh", "frosty", "full", "future",
    "gentle", "glad", "gold", "golden", "good", "grand", "gray", "great", "green", "handy", "happy", "hardy", "hazel",
    "hearty", "honest", "humble", "icy", "ideal", "indigo", "inland", "ivory", "jade", "jolly", "jovial", "joyful",
    "just", "keen", "kind", "lavish", "leafy", "level", "light", "lilac", "lime", "lively", "local", "long", "loyal",
    "lucid", "lucky", "lunar", "magic", "major", "maple", "mellow", "merry", "mild", "mint", "misty", "modern",
    "modest", "mossy", "neat", "new", "nimble", "noble", "north", "novel", "oaken", "olive", "open", "orange", "pale",
    "patient", "pearly", "placid", "plain", "polar", "polite", "prime", "proper", "proud", "pure", "quick", "quiet",
    "rapid", "rare", "ready", "real", "rich", "ripe", "robust", "rosy", "royal", "ruby", "rustic", "sage", "sandy",
    "scenic", "serene", "sharp", "shiny", "silent", "silver", "simple", "sleek", "smooth", "snowy", "social", "solar",
    "solid", "sound", "south", "spare", "stable", "starry", "steady", "still", "sturdy", "subtle", "sunny", "sure",
    "swift", "tall", "tidy", "timely", "topaz", "true", "upbeat", "urban", "useful", "valid", "vast",
];

/// What comes last.
pub const THINGS: &[&str] = &[
    "acorn", "alder", "anchor", "apple", "arbor", "arch", "aspen", "aster", "atlas", "badge", "bamboo", "banner",
    "barley", "basin", "bay", "beacon", "bear", "beaver", "bell", "berry", "birch", "bird", "bloom", "boat", "book",
    "branch", "breeze", "brick", "bridge", "brook", "cabin", "camel", "candle", "canoe", "canyon", "cape", "castle",
    "cedar", "chalk", "cherry", "cliff", "clock", "cloud", "clover", "coast", "comet", "compass", "cove", "crane",
    "creek", "crest", "cricket", "crystal", "dale", "dawn", "delta", "desert", "dew", "dock", "dove", "drum", "dune",
    "eagle", "echo", "elm", "ember", "falcon", "feather", "fern", "ferry", "field", "finch", "fjord", "flame", "flint",
    "flute", "forest", "fountain", "fox", "garden", "garnet", "gate", "glade", "glen", "globe", "grove", "gull",
    "harbor", "harp", "hawk", "heath", "hedge", "heron", "hill", "horizon", "iris", "island", "ivy", "jasmine",
    "kestrel", "kettle", "kite", "lagoon", "lake", "lamp", "lantern", "larch", "lark", "laurel", "leaf", "ledge",
    "lemon", "lily", "linden", "lotus", "lynx", "magpie", "mango", "marble", "market", "marsh", "meadow", "melon",
    "mill", "mirror", "moon", "moss", "mountain", "nectar", "nest", "oak", "oasis", "ocean", "orbit", "orchard",
    "orchid", "osprey", "otter", "owl", "paddle", "palm", "panda", "path", "peach", "peak", "pebble", "pepper",
    "petal", "piano", "pine", "planet", "plaza", "plum", "pond", "poplar", "prairie", "prism", "quarry", "quartz",
    "quill", "rain", "raven", "reef", "ridge", "river", "robin", "rocket", "rose", "saddle", "sail", "saturn", "shell",
    "shore", "sky", "slate", "sparrow", "spring", "spruce", "star", "stone", "stream", "summit", "swan", "thistle",
    "tide", "tiger", "timber", "tower", "trail", "tulip", "valley", "violet", "walnut", "water", "wave", "whale",
    "willow", "wind", "wren", "zephyr",
];
