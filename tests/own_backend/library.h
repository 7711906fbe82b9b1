/* The kernel library of the example: one image, row-major float32. */
#ifndef ACME_LIBRARY_H_
#define ACME_LIBRARY_H_

/* y [out, height, width] = 3x3 convolution of x [in, height, width] with w [out, in, 3, 3], stride 1,
 * zeros around the image, plus bias [out] if there is one. */
static void acme_conv2d_3x3(const float *x, int in, int height, int width, const float *w, const float *bias,
                            int out, float *y) {
  for (int o = 0; o < out; o++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++) {
        float sum = bias ? bias[o] : 0.0f;
        for (int i = 0; i < in; i++)
          for (int r = 0; r < 3; r++)
            for (int s = 0; s < 3; s++) {
              const int row = v + r - 1, column = u + s - 1;
              if (row >= 0 && row < height && column >= 0 && column < width)
                sum += w[((o * in + i) * 3 + r) * 3 + s] * x[(i * height + row) * width + column];
            }
        y[(o * height + v) * width + u] = sum;
      }
}

static void acme_add(const float *a, const float *b, long count, float *y) {
  for (long i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static void acme_relu(const float *x, long count, float *y) {
  for (long i = 0; i < count; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

#endif
