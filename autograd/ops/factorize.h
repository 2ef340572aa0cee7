// SPDX-License-Identifier: Apache-2.0
// Numerical linear algebra of one matrix: what linalg.h makes of each matrix of a batch, by Eigen,
// whose headers factorize.cpp alone includes (singular values are by Jacobi's turns, as Eigen's
// take as long to compile as all the rest). Matrices are dense and row-major, of f64, on the host;
// what comes out lies elsewhere than what goes in. Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace peal::factorize {

using Size = std::int64_t;

// Of a [n, n], by its LU factors with rows exchanged. False where it is singular: a pivot is 0.
bool invert(double* inverse, const double* a, Size n);
// x [n, k] with a x = b, or a^T x = b.
bool solve(double* x, const double* a, bool transposed, const double* b, Size n, Size k);
// The determinant is sign e^log: sign 0 and log -infinite where a is singular.
void log_determinant(double* sign, double* log, const double* a, Size n);
double determinant(const double* a, Size n);
// The determinant's gradient, which is that of any matrix: det(a) a^-T where there is an inverse.
void cofactors(double* gradient, const double* a, Size n);

// Which triangle of a counts, and how.
struct Triangle {
  bool upper = false;
  bool unit = false;        // the diagonal counts as 1
  bool transposed = false;  // of the triangle itself, before this
};
// False where an element of the diagonal is 0.
bool solve_triangular(double* x, const double* a, Triangle triangle, const double* b, Size n,
                      Size k);

// l [n, n] with l l^T = a, of a's lower triangle: 0, or the order of the first leading minor that
// is not positive.
Size cholesky(double* l, const double* a, Size n);
// q [m, k] of orthonormal columns and r [k, n] with q r = a [m, n], where k is the smaller of m and
// n, or m. The signs are LAPACK's.
void qr(double* q, double* r, const double* a, Size m, Size n, Size k);
// u [m, k], s [k] from the largest down, and vh [k, n], where k is the smaller of m and n. False
// where a holds what is not finite, or nothing converges.
bool svd(double* u, double* s, double* vh, const double* a, Size m, Size n);
// Eigenvalues w [n] from the smallest up, and as columns of v [n, n] their vectors, of a's lower
// triangle; NaN where that holds what is not finite.
bool eigh(double* w, double* v, const double* a, Size n);

}  // namespace peal::factorize
