/* Structures that fill the array and are used at random; part of paging.c, after objects.h. Each phase returns how many
 * operations it has done; what is found is checked.
 *
 *   hash-insert:N  a table of open addressing, sized beforehand for the whole array (two words an entry), gets N entries more
 *   hash-find:N    N of them are looked for
 *   tree-build     a B-tree of nodes of 512 bytes, filled in order
 *   tree-find:N    N keys are looked for in it
 *   tree-update:N  and what belongs to them is changed; every other half undoes the one before */

static uint64_t inserted;

/* Never 0, which is an empty entry; different for different `index`. */
static uint64_t key_of_entry(uint64_t index) { return (index + 1) * 0x9e3779b97f4a7c15u; }

/* The place of the key, or the empty one where it belongs. */
static uint64_t* find_entry(uint64_t key) {
  const uint64_t entries = words / 2;
  uint64_t entry = key_of(key) % entries;
  while (array[2 * entry] != 0 && array[2 * entry] != key) {
    entry = (entry + 1) % entries;
  }
  return &array[2 * entry];
}

static uint64_t insert_entries(uint64_t count) {
  for (const uint64_t end = inserted + count; inserted < end && inserted < words / 4; ++inserted) {
    uint64_t* entry = find_entry(key_of_entry(inserted));
    entry[0] = key_of_entry(inserted);
    entry[1] = inserted * kStep;
  }
  return count;
}

static uint64_t find_entries(uint64_t count, uint64_t seed) {
  for (uint64_t each = 0; each < count; ++each) {
    const uint64_t index = next_random(&seed) % inserted;
    wrong |= find_entry(key_of_entry(index))[1] != index * kStep;
  }
  return count;
}

/* The tree: nodes of 64 words, level below level, the leaves last. A leaf has 32 keys, each with its value; an inner node has
 * the first keys of its 64 children, which lie one after the other. Keys are 3, 6, 9 ... */
enum { kNodeWords = 64, kKeysOfLeaf = 32, kMostLevels = 6 };
struct tree {
  int levels;
  uint64_t first[kMostLevels], nodes[kMostLevels]; /* of each level, from the root on */
  uint64_t keys;
};

static struct tree shape_of_tree(void) {
  struct tree tree = {0, {0}, {0}, 0};
  uint64_t nodes[kMostLevels], all = 0;
  const uint64_t leaves = words / kNodeWords * 62 / 63;
  for (nodes[0] = leaves; nodes[tree.levels] > 1 && tree.levels + 1 < kMostLevels; ++tree.levels) {
    nodes[tree.levels + 1] = (nodes[tree.levels] + kNodeWords - 1) / kNodeWords;
  }
  ++tree.levels;
  for (int level = 0; level < tree.levels; ++level) {
    tree.nodes[level] = nodes[tree.levels - 1 - level];
    tree.first[level] = all;
    all += tree.nodes[level];
  }
  if (all * kNodeWords > words || tree.nodes[0] > 1) {
    fprintf(stderr, "paging: the tree does not fit\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  tree.keys = leaves * kKeysOfLeaf;
  return tree;
}

static uint64_t key_in_tree(uint64_t index) { return 3 * (index + 1); }

static void build_tree(void) {
  const struct tree tree = shape_of_tree();
  uint64_t under = kKeysOfLeaf; /* keys below a node of the level */
  for (int level = tree.levels - 1; level >= 0; --level) {
    for (uint64_t node = 0; node < tree.nodes[level]; ++node) {
      uint64_t* node_words = array + (tree.first[level] + node) * kNodeWords;
      if (level == tree.levels - 1) {
        for (uint64_t key = 0; key < kKeysOfLeaf; ++key) {
          node_words[2 * key] = key_in_tree(node * kKeysOfLeaf + key);
          node_words[2 * key + 1] = (node * kKeysOfLeaf + key) * kStep;
        }
      } else {
        for (uint64_t child = 0; child < kNodeWords; ++child) {
          const uint64_t index = (node * kNodeWords + child) * under;
          node_words[child] = index < tree.keys ? key_in_tree(index) : UINT64_MAX;
        }
      }
    }
    under *= level == tree.levels - 1 ? 1 : kNodeWords;
  }
}

/* The last of `count` keys, `step` words from one to the next, that is not above `key`. */
static uint64_t last_not_above(const uint64_t* keys, uint64_t count, uint64_t step, uint64_t key) {
  uint64_t low = 0;
  while (count > 1) {
    const uint64_t half = count / 2;
    low += keys[(low + half) * step] <= key ? half : 0;
    count -= half;
  }
  return low;
}

static uint64_t* find_in_tree(const struct tree* tree, uint64_t key) {
  uint64_t node = 0;
  for (int level = 0; level + 1 < tree->levels; ++level) {
    node = node * kNodeWords + last_not_above(array + (tree->first[level] + node) * kNodeWords, kNodeWords, 1, key);
  }
  uint64_t* leaf = array + (tree->first[tree->levels - 1] + node) * kNodeWords;
  uint64_t* entry = leaf + 2 * last_not_above(leaf, kKeysOfLeaf, 2, key);
  wrong |= entry[0] != key;
  return entry + 1;
}

static uint64_t find_keys(uint64_t count, uint64_t seed) {
  const struct tree tree = shape_of_tree();
  for (uint64_t each = 0; each < count; ++each) {
    const uint64_t index = next_random(&seed) % tree.keys;
    wrong |= *find_in_tree(&tree, key_in_tree(index)) != index * kStep;
  }
  return count;
}

static uint64_t update_keys(uint64_t count, uint64_t seed) {
  const struct tree tree = shape_of_tree();
  for (int half = 0; half < 2; ++half) {
    uint64_t state = seed;
    for (uint64_t each = 0; each < count / 2; ++each) {
      const uint64_t index = next_random(&state) % tree.keys;
      *find_in_tree(&tree, key_in_tree(index)) ^= index | 1;
    }
  }
  return count;
}
