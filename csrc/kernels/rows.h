/* How rows whose width is known at the call are cut into register tiles. */
#ifndef CONVOY_KERNELS_ROWS_H_
#define CONVOY_KERNELS_ROWS_H_

/* A row of `width` pixels as tiles[0] tiles of pixels[0] pixels and tiles[1] of pixels[1]: the fewest of at
 * most `most`, whose sizes differ by one at most. */
static inline void cv_cut_row(int pixels[2], int tiles[2], int width, int most) {
  const int count = (width + most - 1) / most, small = width / count, larger = width % count;
  pixels[0] = larger ? small + 1 : small;
  pixels[1] = small;
  tiles[0] = larger ? larger : count;
  tiles[1] = count - tiles[0];
}

/* The same with as many of `most` pixels as there are, and what is left in one. */
static inline void cv_cut_whole(int pixels[2], int tiles[2], int width, int most) {
  pixels[0] = most;
  pixels[1] = width % most ? width % most : most;
  tiles[0] = width / most;
  tiles[1] = width % most > 0;
}

#endif
