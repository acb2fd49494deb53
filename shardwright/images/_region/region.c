/* Decode a rectangle of a JPEG, with libjpeg-turbo and an entropy decoder of its own.
 *
 * libjpeg-turbo reads headers, transforms, upsamples and converts colors. Three quarters of the time
 * of a baseline file are its entropy-coded data, which has to be read up to any place in it. Here
 * the function for that is replaced by one that finds one or two symbols with their values in a
 * table at once, and as many as fit into 10 bits where no pixel is wanted (ITU-T T.81, annex F.2).
 *
 * The scan is always read to its end, and all that is irregular ends in an error: a warning of the
 * library, a code that is not in a table, a stray marker, too few or too many bytes. The caller then
 * decodes the whole image with another library, which tells what is wrong.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg62.h"

enum { BITS = 10 }; /* that index a table */
enum { END_OF_BLOCK = 80, NEVER = 200 }; /* counts of coefficients that no block has */
enum { PLACES = 64 + 2 * END_OF_BLOCK }; /* that a damaged block may reach */
enum { PADDING = 2400 }; /* zeros behind the data: more bytes than an MCU of 10 blocks takes */
/* In columns of a part twice the largest sampling factor: libjpeg-turbo 3.1.0 crashes with fewer than two of color. */
enum { LEAST_COLUMNS = 8, LARGEST_REDUCTION = 8 };

/* A symbol is its code's length, the places that it moves on << 8, and its value's size << 16. Arrays are indexed by
 * the next bits; 0: the code, or the first value, is longer. */
typedef struct {
  jpeg_huffman source;
  int is_built; /* an empty table's source equals zeros, by which a block would never end */
  uint32_t symbol[1 << BITS];
  /* One symbol, or two: all bits, all places << 8, the first one's places << 16 and bits << 24, and both values << 32
   * and << 48. Without a second symbol the first is there twice. */
  uint64_t pair[1 << BITS];
  /* As many as fit: bits, places needed in the block << 8, and places moved on << 16; of `width` bits at 1 << width. */
  uint32_t many[2 << BITS];
} Table;

typedef struct Decoder {
  jpeg_file file;
  jpeg_errors errors;
  jmp_buf escape;
  char message[JPEG_LONGEST_MESSAGE];
  Table dc[JPEG_TABLES], ac[JPEG_TABLES];
  const uint8_t **starts; /* of restart intervals in the scan without stuffing, its end, then the scan itself */
  size_t size, num_intervals, interval;
  const uint8_t *next, *end;
  uint64_t reservoir;
  int held; /* bits in the reservoir, from its highest one on */
  int last_dc[JPEG_COMPONENTS];
  unsigned mcu, first_column, end_column; /* the number of the next MCU; the columns of MCUs that are wanted */
  struct Decoder *following;
} Decoder;

static struct {
  jpeg_errors *(*std_error)(jpeg_errors *);
  void (*create)(jpeg_file *, int version, size_t), (*mem_src)(jpeg_file *, const uint8_t *, unsigned long);
  int (*read_header)(jpeg_file *, int), (*start)(jpeg_file *);
  void (*crop)(jpeg_file *, unsigned *left, unsigned *width);
  unsigned (*skip)(jpeg_file *, unsigned), (*read)(jpeg_file *, uint8_t **, unsigned);
  int (*finish)(jpeg_file *);
  void (*destroy)(jpeg_file *);
} jpeg;

static Decoder *idle; /* guarded by the GIL */
static int is_own;    /* use the entropy decoder here */

/* T.81, figure A.6; a damaged block goes on in its last coefficient. */
static const uint8_t zigzag[64] = {
  0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
  35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};
static uint8_t before[PLACES]; /* the coefficient before each place */

static void irregular(Decoder *decoder, const char *message) {
  if (!decoder->message[0]) strcpy(decoder->message, message);
  longjmp(decoder->escape, 1);
}

static void on_error(jpeg_any any) {
  Decoder *decoder = any->client_data;
  if (!decoder->message[0]) any->errors->format_message(any, decoder->message);
  longjmp(decoder->escape, 1);
}

static void on_message(jpeg_any any, int level) {
  if (level < 0) on_error(any); /* a warning */
}

/* ---- Tables ---- */

/* The value of `size` bits at the start of the reservoir (T.81, F.2.2.1). */
static inline int value_of(uint64_t reservoir, int size) {
  int value = (int)(reservoir >> 1 >> (63 - size));
  return value + ((int)((int64_t)~reservoir >> 63) & (1 - (1 << size)));
}

static inline int length_of(uint32_t symbol) { return symbol & 255; }
static inline int places_of(uint32_t symbol) { return symbol >> 8 & 255; }
static inline int size_of(uint32_t symbol) { return symbol >> 16; }
static inline int bits_of(uint32_t symbol) { return length_of(symbol) + size_of(symbol); }

static uint32_t symbol_of(int value, int length, int is_ac) {
  int size = is_ac ? value & 15 : value;
  int places = !is_ac ? 1 : size || value == 0xF0 ? (value >> 4) + 1 : END_OF_BLOCK;
  return length | places << 8 | size << 16;
}

/* The symbol whose code begins 16 bits; 0 for none. Codes of a length follow each other, from twice the end of the last. */
static uint32_t find(const Table *table, uint32_t bits, int is_ac) {
  const uint8_t *counts = table->source.bits, *values = table->source.values;
  for (int length = 1, code = 0; length <= 16; values += counts[length++]) {
    int number = (int)(bits >> (16 - length)) - code;
    if (number < counts[length]) return symbol_of(values[number], length, is_ac);
    code = (code + counts[length]) << 1;
  }
  return 0;
}

/* Fill the tables of several symbols from that of one. A code is there as a whole if it is not longer than the bits are. */
static void fill(Table *table) {
  for (int width = 1; width <= BITS; width++)
    for (uint32_t bits = 0; bits < 1u << width; bits++) {
      uint32_t symbol = table->symbol[bits << (BITS - width)], places = places_of(symbol);
      int rest = width - bits_of(symbol), is_end = places == END_OF_BLOCK;
      /* The value need not be there. A block that is full has no end: it needs one place. */
      uint32_t many = bits_of(symbol) | (is_end ? 1 : places) << 8 | places << 16;
      if (!symbol || length_of(symbol) > width) many = width == BITS ? NEVER << 8 : 0;
      else if (rest > 0 && !is_end) many += table->many[1u << rest | (bits & ((1u << rest) - 1))];
      table->many[1u << width | bits] = many;
    }
  for (uint32_t bits = 0; bits < 1 << BITS; bits++) {
    uint64_t reservoir = (uint64_t)bits << (64 - BITS), places, used, value;
    uint32_t first = table->symbol[reservoir >> (64 - BITS)], second;
    used = bits_of(first), places = places_of(first);
    if (!first || used > BITS) continue;
    value = (uint16_t)value_of(reservoir << length_of(first), size_of(first));
    table->pair[bits] = used | places << 8 | places << 16 | used << 24 | value << 32 | value << 48;
    reservoir <<= used;
    second = table->symbol[reservoir >> (64 - BITS)];
    if (places == END_OF_BLOCK || !second || used + bits_of(second) > BITS) continue;
    value ^= (uint16_t)value_of(reservoir << length_of(second), size_of(second)); /* replaces the upper one */
    table->pair[bits] = (table->pair[bits] ^ value << 48) + (bits_of(second) | places_of(second) << 8);
  }
}

/* Make the table of a file, unless the last file had the same; return whether it is of 8-bit samples. */
static int build(Table *table, const jpeg_huffman *source, int is_ac) {
  if (table->is_built && !memcmp(table->source.bits + 1, source->bits + 1, 16) && !memcmp(table->source.values, source->values, 256)) return 1;
  memset(table, 0, sizeof *table);
  memcpy(table->source.values, source->values, 256);
  memcpy(table->source.bits, source->bits, 17);
  const uint8_t *value = table->source.values;
  uint32_t *to = table->symbol;
  for (int length = 1, code = 0, count = 0; length <= 16; length++, code <<= 1) {
    code += source->bits[length];
    count += source->bits[length];
    int is_sound = count <= 256 && code <= 1 << length;
    for (int number = 0; is_sound && number < source->bits[length]; number++, value++) {
      is_sound = is_ac ? (*value & 15) <= 10 : *value <= 11;
      for (int index = 0; length <= BITS && index < 1 << (BITS - length); index++) *to++ = symbol_of(*value, length, is_ac);
    }
    if (!is_sound) return 0;
  }
  if (is_ac) fill(table);
  return table->is_built = 1;
}

/* ---- Entropy-coded data ---- */

/* Copy the scan without stuffed zeros; return whether it is whole, with its restart markers and no other. */
static int unstuff(Decoder *decoder, const uint8_t *from, size_t length, size_t num_intervals) {
  if (num_intervals > length) return 0;
  size_t size = (num_intervals + 1) * sizeof *decoder->starts + length + PADDING;
  if (decoder->size < size) {
    free(decoder->starts);
    decoder->size = size + size / 4;
    if (!(decoder->starts = malloc(decoder->size))) return decoder->size = 0, 0;
  }
  uint8_t *to = (uint8_t *)(decoder->starts + num_intervals + 1);
  const uint8_t *end = from + length;
  size_t found = 0;
  for (decoder->starts[found++] = to;;) {
    const uint8_t *marker = memchr(from, 0xFF, end - from);
    if (!marker || marker + 1 >= end) return 0;
    memcpy(to, from, marker - from);
    to += marker - from;
    from = marker + 2;
    if (!marker[1]) *to++ = 0xFF;
    else if (marker[1] == 0xD0 + ((found - 1) & 7) && found < num_intervals) decoder->starts[found++] = to;
    else break;
  }
  decoder->starts[found] = to;
  memset(to, 0, PADDING);
  decoder->num_intervals = found;
  return from[-1] == 0xD9 && found == num_intervals;
}

static void start_interval(Decoder *decoder) {
  if (decoder->interval == decoder->num_intervals) irregular(decoder, "too few restart markers");
  decoder->next = decoder->starts[decoder->interval];
  decoder->end = decoder->starts[++decoder->interval];
  decoder->reservoir = decoder->held = 0;
  memset(decoder->last_dc, 0, sizeof decoder->last_dc);
}

static void check_end(Decoder *decoder) { /* of an interval: less than a byte is left */
  if (decoder->next - decoder->held / 8 != decoder->end) irregular(decoder, "too few or too many bytes in the scan");
}

static __attribute__((noinline)) uint32_t find_long(Decoder *decoder, const Table *table, uint64_t reservoir, int is_ac) {
  uint32_t symbol = find(table, reservoir >> 48, is_ac);
  if (!symbol) irregular(decoder, "a code that is not in the table");
  return symbol;
}

/* The reservoir is in local variables, so that it stays in registers. After REFILL it has 56 bits or more: two
 * symbols with their values: a code has up to 16, a value up to 11. */
#define REFILL() do { \
    uint64_t more; \
    memcpy(&more, next, 8); \
    reservoir |= __builtin_bswap64(more) >> held; \
    next += (63 - held) >> 3; \
    held |= 56; \
  } while (0)
#define DROP(count) (reservoir <<= (count), held -= (count))
#define READ(table, is_ac) do { \
    uint32_t symbol = (table)->symbol[reservoir >> (64 - BITS)]; \
    if (__builtin_expect(!symbol, 0)) symbol = find_long(decoder, table, reservoir, is_ac); \
    DROP(length_of(symbol)); \
    value = value_of(reservoir, size_of(symbol)); \
    DROP(size_of(symbol)); \
    place += places_of(symbol); \
  } while (0)
#define STORE() do { \
    uint64_t pair = ac->pair[reservoir >> (64 - BITS)]; \
    int first = place + (int)(pair >> 16 & 255); \
    if (__builtin_expect(!pair, 0)) { \
      READ(ac, 1); \
      block[before[place]] = value; \
      break; \
    } \
    block[before[first]] = pair >> 32; \
    if (__builtin_expect(first > 63, 0)) place = first, DROP((int)(pair >> 24 & 255)); \
    else { \
      place += pair >> 8 & 255; \
      block[before[place]] = pair >> 48; \
      DROP((int)(pair & 255)); \
    } \
  } while (0)
#define PASS() do { \
    uint32_t many = ac->many[1 << BITS | reservoir >> (64 - BITS)]; \
    if (__builtin_expect(place + (many >> 8 & 255) > 64, 0)) READ(ac, 1); \
    else place += many >> 16, DROP((int)(many & 255)); \
  } while (0)

/* Take two steps a REFILL: one is 10 % slower. */
#define READ_BLOCK(STEP) do { \
    STEP(); \
    REFILL(); \
    if (place > 63) break; \
    STEP(); \
  } while (place <= 63)

/* In place of libjpeg's. `blocks` are zeros; without them, and outside of the columns wanted, nothing is stored. */
static int decode_mcu(jpeg_file *file, int16_t (**blocks)[64]) {
  Decoder *decoder = file->common.client_data;
  unsigned column = decoder->mcu % file->mcus_per_row;
  int is_wanted = blocks && column >= decoder->first_column && column < decoder->end_column;
  if (file->restart_interval && decoder->mcu && decoder->mcu % file->restart_interval == 0) {
    check_end(decoder);
    start_interval(decoder);
  }
  decoder->mcu++;
  const uint8_t *next = decoder->next;
  uint64_t reservoir = decoder->reservoir;
  int held = decoder->held;
  for (int number = 0; number < file->mcu_blocks; number++) {
    int component = file->mcu_membership[number], value, place = 0;
    const Table *dc = decoder->dc + file->scan[component]->dc_table;
    const Table *ac = decoder->ac + file->scan[component]->ac_table;
    REFILL();
    READ(dc, 0);
    decoder->last_dc[component] += value;
    if (is_wanted) {
      int16_t *block = *blocks[number];
      block[0] = decoder->last_dc[component];
      READ_BLOCK(STORE);
    } else READ_BLOCK(PASS);
    if (__builtin_expect(place > 64 && place <= END_OF_BLOCK, 0)) irregular(decoder, "too many coefficients in a block");
  }
  decoder->next = next;
  decoder->reservoir = reservoir;
  decoder->held = held;
  if (next - held / 8 > decoder->end) irregular(decoder, "too few bytes in the scan");
  return 1;
}

/* Replace libjpeg's entropy decoder if the file is baseline with one scan, and return whether it was. */
static int take_over(Decoder *decoder, unsigned first_column, unsigned end_column) {
  jpeg_file *file = &decoder->file;
  int is_baseline = !file->is_arithmetic && file->precision == 8 && file->scan_components == file->num_components &&
                    !file->ss && file->se == 63 && !file->ah && !file->al;
  if (!is_own || !is_baseline) return 0;
  for (int number = 0; number < file->scan_components; number++) {
    int dc = file->scan[number]->dc_table, ac = file->scan[number]->ac_table;
    if (dc < 0 || dc >= JPEG_TABLES || ac < 0 || ac >= JPEG_TABLES || !file->dc_tables[dc] || !file->ac_tables[ac]) return 0;
    if (!build(decoder->dc + dc, file->dc_tables[dc], 0) || !build(decoder->ac + ac, file->ac_tables[ac], 1)) return 0;
  }
  size_t num_mcus = (size_t)file->mcus_per_row * file->mcu_rows, interval = file->restart_interval;
  if (!unstuff(decoder, file->source->next, file->source->left, interval ? (num_mcus + interval - 1) / interval : 1))
    irregular(decoder, "the scan is cut short or has stray markers");
  decoder->mcu = decoder->interval = 0;
  decoder->first_column = first_column;
  decoder->end_column = end_column;
  start_interval(decoder);
  file->entropy->decode_mcu = decode_mcu;
  return 1;
}

/* ---- A file ---- */

/* What is wanted, in pixels of the file, then what is decoded, in pixels of the reduced image. */
typedef struct {
  unsigned top, left, bottom, right;
  int reduction, is_fast;
  unsigned height, width;
  uint8_t *pixels;
} Part;

/* Read the header; place the part on whole MCUs, with a margin for upsampling. */
static int open_file(Decoder *decoder, const uint8_t *data, size_t length, Part *part) {
  jpeg_file *file = &decoder->file;
  decoder->message[0] = 0;
  file->common.errors = jpeg.std_error(&decoder->errors);
  decoder->errors.error_exit = on_error;
  decoder->errors.emit_message = on_message;
  file->common.client_data = decoder;
  file->common.memory = NULL;
  if (setjmp(decoder->escape)) return 0;
  jpeg.create(file, JPEG_VERSION, sizeof *file);
  jpeg.mem_src(file, data, length);
  if (jpeg.read_header(file, 1) != JPEG_HEADER_OK) return 0;
  unsigned wide = 8 * (file->num_components == 1 ? 1 : file->max_h_samp), high = 8 * (file->num_components == 1 ? 1 : file->max_v_samp);
  unsigned reduction = part->reduction, margin = reduction, least = LEAST_COLUMNS * reduction;
  if (part->bottom > file->height || part->right > file->width || part->top >= part->bottom || part->left >= part->right)
    irregular(decoder, "the rectangle is not in the image");
  unsigned left = part->left < margin ? 0 : part->left - margin, most_left = file->width < least ? 0 : file->width - least;
  part->left = (left < most_left ? left : most_left) / wide * wide;
  part->top = (part->top < margin ? 0 : part->top - margin) / high * high;
  part->bottom = part->bottom + margin < file->height ? part->bottom + margin : file->height;
  unsigned right = part->right + margin > part->left + least ? part->right + margin : part->left + least;
  part->right = right < file->width ? right : file->width;
  part->height = (part->bottom + reduction - 1) / reduction - part->top / reduction;
  part->width = (part->right + reduction - 1) / reduction - part->left / reduction;
  return 1;
}

static int decode(Decoder *decoder, const Part *part) {
  jpeg_file *file = &decoder->file;
  if (setjmp(decoder->escape)) return 0;
  unsigned reduction = part->reduction, left = part->left / reduction, width = part->width;
  file->dct_method = JPEG_FAST_DCT;
  file->fancy_upsampling = !part->is_fast;
  file->out_space = JPEG_RGB;
  file->scale_denom = reduction;
  jpeg.start(file);
  jpeg.crop(file, &left, &width);
  if (left != part->left / reduction || width != part->width) irregular(decoder, "the rectangle does not begin at an MCU");
  unsigned mcu = (file->num_components == 1 ? 1 : file->max_h_samp) * 8 / reduction;
  int is_taken = take_over(decoder, left / mcu, (left + width + mcu - 1) / mcu);
  /* Once, and in whole MCUs: to skip after an odd row never ends (libjpeg-turbo 2.1.5, 3.1.4). */
  if (part->top) jpeg.skip(file, part->top / reduction);
  for (unsigned row = 0, done; row < part->height; row += done) {
    uint8_t *rows[16]; /* a row a call is 9 % slower */
    unsigned count = part->height - row < 16 ? part->height - row : 16;
    for (unsigned number = 0; number < count; number++) rows[number] = part->pixels + (size_t)(row + number) * width * 3;
    if (!(done = jpeg.read(file, rows, count))) irregular(decoder, "no rows");
  }
  if (is_taken) {
    while (decoder->mcu < file->mcus_per_row * file->mcu_rows) decode_mcu(file, NULL);
    check_end(decoder);
    return decoder->interval == decoder->num_intervals;
  }
  /* Several scans were read to their end at the start. */
  if (file->scan_components != file->num_components || file->is_progressive) return 1;
  uint8_t *rest = file->common.memory->alloc_large(&file->common, JPEG_POOL_IMAGE, (size_t)width * 3);
  while (file->out_row < file->out_height)
    if (!jpeg.read(file, &rest, 1)) irregular(decoder, "no rows");
  return jpeg.finish(file);
}

/* ---- Python ---- */

static PyObject *py_decode(PyObject *Py_UNUSED(self), PyObject *args) {
  Py_buffer data;
  Part part;
  if (!PyArg_ParseTuple(args, "y*IIIIpi", &data, &part.top, &part.left, &part.bottom, &part.right, &part.is_fast, &part.reduction)) return NULL;
  PyObject *pixels = NULL, *found = NULL;
  int reduction = part.reduction, is_decoded = 0;
  Decoder *decoder = NULL;
  if (!jpeg.create || reduction < 1 || reduction > LARGEST_REDUCTION || reduction & (reduction - 1))
    PyErr_SetString(PyExc_ValueError, "no library is loaded, or the reduction is not 1, 2, 4 or 8");
  else if (idle) decoder = idle, idle = decoder->following;
  else if (!(decoder = calloc(1, sizeof *decoder))) PyErr_NoMemory();
  if (decoder) {
    if (open_file(decoder, data.buf, data.len, &part))
      pixels = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)part.height * part.width * 3);
    if (pixels) {
      part.pixels = (uint8_t *)PyByteArray_AsString(pixels);
      Py_BEGIN_ALLOW_THREADS
      is_decoded = decode(decoder, &part);
      Py_END_ALLOW_THREADS
    }
    if (decoder->file.common.memory) jpeg.destroy(&decoder->file);
    if (is_decoded) found = Py_BuildValue("OIIII", pixels, part.height, part.width, part.top, part.left);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, decoder->message[0] ? decoder->message : "no image");
    decoder->following = idle;
    idle = decoder;
  }
  Py_XDECREF(pixels);
  PyBuffer_Release(&data);
  return found;
}

static PyObject *py_load(PyObject *Py_UNUSED(self), PyObject *args) {
  const char *path;
  static const char *const names[] = {"jpeg_std_error", "jpeg_CreateDecompress", "jpeg_mem_src", "jpeg_read_header", "jpeg_start_decompress",
    "jpeg_crop_scanline", "jpeg_skip_scanlines", "jpeg_read_scanlines", "jpeg_finish_decompress", "jpeg_destroy_decompress"};
  void *found[sizeof names / sizeof *names];
  if (!PyArg_ParseTuple(args, "sp", &path, &is_own)) return NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  for (size_t number = 0; library && number < sizeof names / sizeof *names; number++)
    if (!(found[number] = dlsym(library, names[number]))) library = NULL;
  if (!library) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
  memcpy(&jpeg, found, sizeof jpeg);
  for (int place = 0; place < PLACES; place++) before[place] = zigzag[place < 1 ? 0 : place > 64 ? 63 : place - 1];
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
  {"load", py_load, METH_VARARGS, "load(path, own): use the libjpeg-turbo at a path, with this entropy decoder if `own`."},
  {"decode", py_decode, METH_VARARGS, "decode(data, top, left, bottom, right, fast, reduction): RGB pixels, height, width, top and left of a part."},
  {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_region", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__region(void) { return PyModule_Create(&module); }
