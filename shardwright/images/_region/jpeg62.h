/* What the extension uses of libjpeg-turbo's interface, version 62, stated here so that it is built without that library.
 * `jpeg_CreateDecompress` compares version and size with its own, and tests/shardwright/images/test_region.py each place
 * with the system's jpeglib.h.
 */
#ifndef SHARDWRIGHT_JPEG62_H
#define SHARDWRIGHT_JPEG62_H

#include <stddef.h>
#include <stdint.h>

enum { JPEG_VERSION = 62, JPEG_HEADER_OK = 1, JPEG_LONGEST_MESSAGE = 200 };
enum { JPEG_RGB = 2, JPEG_FAST_DCT = 1, JPEG_POOL_IMAGE = 1, JPEG_TABLES = 4, JPEG_COMPONENTS = 4 };

typedef struct jpeg_common *jpeg_any;
typedef struct jpeg_file jpeg_file;

typedef struct {
  void (*error_exit)(jpeg_any), (*emit_message)(jpeg_any, int level), (*output_message)(jpeg_any);
  void (*format_message)(jpeg_any, char *), (*reset)(jpeg_any);
  int code;
  char parameters[80];
  int trace_level;
  long num_warnings;
  const void *table;
  int last_message;
  const void *other_table;
  int first_other, last_other;
} jpeg_errors;

/* The starts of structures that only the library makes. */
typedef struct { void *(*alloc_small)(jpeg_any, int pool, size_t), *(*alloc_large)(jpeg_any, int pool, size_t); } jpeg_memory;
typedef struct { const uint8_t *next; size_t left; } jpeg_source;
typedef struct { int id, index, h_samp, v_samp, quantization, dc_table, ac_table; } jpeg_component;
typedef struct { uint8_t bits[17], values[256]; int sent; } jpeg_huffman;
/* Private in libjpeg-turbo; the same since libjpeg 6. */
typedef struct { void (*start_pass)(jpeg_file *); int (*decode_mcu)(jpeg_file *, int16_t (**blocks)[64]); } jpeg_entropy;

struct jpeg_common {
  jpeg_errors *errors;
  jpeg_memory *memory;
  void *progress, *client_data;
  int is_decompressor, state;
};

struct jpeg_file {
  struct jpeg_common common;
  jpeg_source *source;
  unsigned width, height;
  int num_components, space, out_space;
  unsigned scale_num, scale_denom;
  double gamma;
  int buffered, raw, dct_method, fancy_upsampling, block_smoothing;
  int quantize, dither, two_pass, num_colors, one_pass_quantizer, own_quantizer, two_pass_quantizer;
  unsigned out_width, out_height;
  int out_color_components, out_components, recommended_rows, num_actual_colors;
  void *color_map;
  unsigned out_row;
  int input_scan;
  unsigned input_row;
  int output_scan;
  unsigned output_row;
  void *coefficient_bits, *quantization[4];
  jpeg_huffman *dc_tables[JPEG_TABLES], *ac_tables[JPEG_TABLES];
  int precision;
  void *components;
  int is_progressive, is_arithmetic;
  uint8_t conditioning[48];
  unsigned restart_interval;
  int saw_jfif;
  uint8_t jfif_major, jfif_minor, density_unit;
  uint16_t x_density, y_density;
  int saw_adobe;
  uint8_t adobe_transform;
  int ccir601;
  void *markers;
  int max_h_samp, max_v_samp, min_dct_size;
  unsigned num_imcu_rows;
  void *range_limit;
  int scan_components;
  jpeg_component *scan[JPEG_COMPONENTS];
  unsigned mcus_per_row, mcu_rows;
  int mcu_blocks, mcu_membership[10], ss, se, ah, al, unread_marker;
  void *master, *main, *coefficients, *post, *input, *marker;
  jpeg_entropy *entropy;
  void *idct, *upsample, *color_convert, *color_quantize;
};

#endif
