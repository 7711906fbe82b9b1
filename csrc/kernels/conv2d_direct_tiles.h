/* All register tiles of up to so many pixels, for rows that are cut at the call (kernels/conv2d_direct.h).
 * Regions of one network have the same ones, and each takes the compiler as long as a region's other code:
 * they are forms. */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_TILES_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_TILES_H_

#if CV_DEFINES_FORMS
#define CV_CONV2D_BYTES 1
#endif

#include "kernels/conv2d_direct_pipelined.h"
#include "kernels/conv2d_direct_places.h"
#include "kernels/conv2d_direct_tile.h"

/* M(1, ...) to M(n, ...). */
#define CV_UP_TO_1(M, ...) M(1, __VA_ARGS__)
#define CV_UP_TO_2(M, ...) CV_UP_TO_1(M, __VA_ARGS__) M(2, __VA_ARGS__)
#define CV_UP_TO_3(M, ...) CV_UP_TO_2(M, __VA_ARGS__) M(3, __VA_ARGS__)
#define CV_UP_TO_4(M, ...) CV_UP_TO_3(M, __VA_ARGS__) M(4, __VA_ARGS__)
#define CV_UP_TO_5(M, ...) CV_UP_TO_4(M, __VA_ARGS__) M(5, __VA_ARGS__)
#define CV_UP_TO_6(M, ...) CV_UP_TO_5(M, __VA_ARGS__) M(6, __VA_ARGS__)
#define CV_UP_TO_7(M, ...) CV_UP_TO_6(M, __VA_ARGS__) M(7, __VA_ARGS__)
#define CV_UP_TO_8(M, ...) CV_UP_TO_7(M, __VA_ARGS__) M(8, __VA_ARGS__)
#define CV_UP_TO_9(M, ...) CV_UP_TO_8(M, __VA_ARGS__) M(9, __VA_ARGS__)
#define CV_UP_TO_10(M, ...) CV_UP_TO_9(M, __VA_ARGS__) M(10, __VA_ARGS__)
#define CV_UP_TO_11(M, ...) CV_UP_TO_10(M, __VA_ARGS__) M(11, __VA_ARGS__)
#define CV_UP_TO_12(M, ...) CV_UP_TO_11(M, __VA_ARGS__) M(12, __VA_ARGS__)
#define CV_UP_TO_13(M, ...) CV_UP_TO_12(M, __VA_ARGS__) M(13, __VA_ARGS__)
#define CV_UP_TO_14(M, ...) CV_UP_TO_13(M, __VA_ARGS__) M(14, __VA_ARGS__)
#define CV_UP_TO_15(M, ...) CV_UP_TO_14(M, __VA_ARGS__) M(15, __VA_ARGS__)
#define CV_UP_TO_16(M, ...) CV_UP_TO_15(M, __VA_ARGS__) M(16, __VA_ARGS__)
#define CV_UP_TO_17(M, ...) CV_UP_TO_16(M, __VA_ARGS__) M(17, __VA_ARGS__)
#define CV_UP_TO_18(M, ...) CV_UP_TO_17(M, __VA_ARGS__) M(18, __VA_ARGS__)
#define CV_UP_TO_19(M, ...) CV_UP_TO_18(M, __VA_ARGS__) M(19, __VA_ARGS__)
#define CV_UP_TO_20(M, ...) CV_UP_TO_19(M, __VA_ARGS__) M(20, __VA_ARGS__)
#define CV_UP_TO_21(M, ...) CV_UP_TO_20(M, __VA_ARGS__) M(21, __VA_ARGS__)
#define CV_UP_TO_22(M, ...) CV_UP_TO_21(M, __VA_ARGS__) M(22, __VA_ARGS__)
#define CV_UP_TO_23(M, ...) CV_UP_TO_22(M, __VA_ARGS__) M(23, __VA_ARGS__)
#define CV_UP_TO_24(M, ...) CV_UP_TO_23(M, __VA_ARGS__) M(24, __VA_ARGS__)
#define CV_UP_TO_25(M, ...) CV_UP_TO_24(M, __VA_ARGS__) M(25, __VA_ARGS__)
#define CV_UP_TO_26(M, ...) CV_UP_TO_25(M, __VA_ARGS__) M(26, __VA_ARGS__)
#define CV_UP_TO_27(M, ...) CV_UP_TO_26(M, __VA_ARGS__) M(27, __VA_ARGS__)
#define CV_UP_TO_28(M, ...) CV_UP_TO_27(M, __VA_ARGS__) M(28, __VA_ARGS__)
#define CV_UP_TO_29(M, ...) CV_UP_TO_28(M, __VA_ARGS__) M(29, __VA_ARGS__)
#define CV_UP_TO_30(M, ...) CV_UP_TO_29(M, __VA_ARGS__) M(30, __VA_ARGS__)
#define CV_UP_TO_31(M, ...) CV_UP_TO_30(M, __VA_ARGS__) M(31, __VA_ARGS__)
#define CV_UP_TO_32(M, ...) CV_UP_TO_31(M, __VA_ARGS__) M(32, __VA_ARGS__)

/* Defines the function `name`, which puts tiles of 1 to MOST pixels in a column of a table of theirs, by
 * their pixels.  KIND(tile, pixels, ...) defines one of them. */
#define CV_CONV2D_TILES(name, MOST, KIND, ...)                                  \
  CV_FORM_PARTS(CV_UP_TO_##MOST(CV_CONV2D_TILE_AMONG, name, KIND, __VA_ARGS__)) \
  CV_FORM(name, (cv_conv2d_tile_pair * tiles, int column), CV_CONV2D_PUT_TILES(name, MOST))

/* The same where KIND(tile, rows, pixels, ...) does. */
#define CV_CONV2D_TILES_OF_ONE_ROW(name, MOST, KIND, ...)                               \
  CV_FORM_PARTS(CV_UP_TO_##MOST(CV_CONV2D_ONE_ROW_TILE_AMONG, name, KIND, __VA_ARGS__)) \
  CV_FORM(name, (cv_conv2d_tile_pair * tiles, int column), CV_CONV2D_PUT_TILES(name, MOST))

#define CV_CONV2D_TILE_AMONG(PIXELS, name, KIND, ...) KIND(name##_##PIXELS, PIXELS, __VA_ARGS__)
#define CV_CONV2D_ONE_ROW_TILE_AMONG(PIXELS, name, KIND, ...) KIND(name##_##PIXELS, 1, PIXELS, __VA_ARGS__)
#define CV_CONV2D_PUT_TILES(name, MOST) \
  tiles[0][column] = NULL;              \
  CV_UP_TO_##MOST(CV_CONV2D_PUT_TILE, name)
#define CV_CONV2D_PUT_TILE(PIXELS, name) tiles[PIXELS][column] = name##_##PIXELS;

#endif
