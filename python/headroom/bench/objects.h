/* Programs made of small objects; part of paging.c. Each returns how many operations it has done.
 *
 *   objects-tree:N     a search tree of N nodes of 48 bytes: filled, searched and half emptied at random
 *   objects-lists:N    a list of N nodes of 24 bytes, four times: made, gone over and freed in order
 *   objects-threads:N  eight threads, each of which replaces one of its 1000 objects of 16 to 1015 bytes N times */

struct node {
  uint64_t key, value;
  struct node *less, *more, *parent;
};

static void* allocate_object(size_t bytes) {
  void* object = malloc(bytes);
  if (object == NULL) {
    fprintf(stderr, "paging: no memory for an object of %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return object;
}

static uint64_t key_of(uint64_t index) {
  index ^= index >> 31;
  index *= 0x9e3779b97f4a7c15u;
  return index ^ index >> 29;
}

static struct node** place_of(struct node** root, uint64_t key, struct node** parent) {
  while (*root != NULL && (*root)->key != key) {
    *parent = *root;
    root = key < (*root)->key ? &(*root)->less : &(*root)->more;
  }
  return root;
}

/* The key of the last node on the way down takes the place of the one that goes. */
static void remove_node(struct node** place) {
  struct node* gone = *place;
  if (gone->less != NULL && gone->more != NULL) {
    struct node** next = &gone->more;
    while ((*next)->less != NULL) {
      next = &(*next)->less;
    }
    gone->key = (*next)->key;
    gone->value = (*next)->value;
    place = next;
    gone = *next;
  }
  *place = gone->less != NULL ? gone->less : gone->more;
  free(gone);
}

static uint64_t use_tree(uint64_t count) {
  struct node *root = NULL, *parent = NULL;
  for (uint64_t index = 0; index < count; ++index) {
    struct node** place = place_of(&root, key_of(index), &parent);
    *place = allocate_object(sizeof **place);
    **place = (struct node){key_of(index), index, NULL, NULL, parent};
  }
  for (uint64_t index = 0; index < count; ++index) {
    wrong |= (*place_of(&root, key_of(index), &parent))->value != index;
  }
  for (uint64_t index = 0; index < count; index += 2) {
    remove_node(place_of(&root, key_of(index), &parent));
  }
  for (uint64_t index = 1; index < count; index += 2) {
    remove_node(place_of(&root, key_of(index), &parent));
  }
  wrong |= root != NULL;
  return count * 3;
}

static uint64_t use_lists(uint64_t count) {
  struct link {
    struct link *next, *previous;
    uint64_t value;
  };
  for (int each = 0; each < 4; ++each) {
    struct link ends = {&ends, &ends, 0};
    for (uint64_t index = 0; index < count; ++index) {
      struct link* last = allocate_object(sizeof *last);
      *last = (struct link){&ends, ends.previous, index};
      ends.previous->next = last;
      ends.previous = last;
    }
    uint64_t sum = 0;
    for (struct link* at = ends.next; at != &ends; at = at->next) {
      sum += at->value;
    }
    wrong |= sum != count * (count - 1) / 2;
    for (struct link *at = ends.next, *next; at != &ends; at = next) {
      next = at->next;
      free(at);
    }
  }
  return 4 * 3 * count;
}

static uint64_t replacements;

/* Returns NULL if all content was right. */
static void* replace_objects(void* number) {
  enum { kHeld = 1000 };
  static char is_wrong;
  void* result = NULL;
  uint64_t state = 88172645463325252u + (uint64_t)(size_t)number;
  uint64_t* held[kHeld] = {NULL};
  for (uint64_t each = 0; each < replacements; ++each) {
    const uint64_t random = next_random(&state);
    uint64_t** place = &held[random % kHeld];
    result = *place != NULL && **place % kHeld != random % kHeld ? &is_wrong : result;
    free(*place);
    *place = allocate_object(16 + (random >> 20) % 1000);
    **place = random;
  }
  for (int each = 0; each < kHeld; ++each) {
    free(held[each]);
  }
  return result;
}

static uint64_t use_threads(uint64_t count) {
  enum { kThreads = 8 };
  pthread_t threads[kThreads];
  replacements = count;
  for (size_t each = 0; each < kThreads; ++each) {
    if (pthread_create(&threads[each], NULL, replace_objects, (void*)each) != 0) {
      fprintf(stderr, "paging: no thread can be made\n");
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }
  for (size_t each = 0; each < kThreads; ++each) {
    void* result = NULL;
    pthread_join(threads[each], &result);
    wrong |= result != NULL;
  }
  return 2 * kThreads * count;
}
