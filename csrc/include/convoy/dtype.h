/* The types of a tensor's elements. */
#ifndef CONVOY_DTYPE_H_
#define CONVOY_DTYPE_H_

typedef enum cv_dtype { CV_FLOAT32, CV_BFLOAT16, CV_INT32, CV_INT8, CV_UINT8 } cv_dtype;

#endif
