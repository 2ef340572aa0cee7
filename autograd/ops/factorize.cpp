// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/one_thread.h>
#include <peal/autograd/ops/factorize.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>

namespace peal::factorize {
namespace {

// Eigen's factors are of columns.
using Matrix = Eigen::MatrixXd;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix read(const double* a, Size m, Size n) { return Eigen::Map<const Rows>(a, m, n); }
Eigen::Map<Rows> at(double* a, Size m, Size n) { return Eigen::Map<Rows>(a, m, n); }

using Factors = Eigen::PartialPivLU<Matrix>;

// Turns pairs of x's columns, and y's with them, until all of x's are at right angles (one-sided
// Jacobi: x y^T stays what it is). REQUIRES: no element is past 1.
bool make_orthogonal(Matrix& x, Matrix& y) {
  const Size n = x.cols();
  const double bound = std::sqrt(static_cast<double>(n)) * std::numeric_limits<double>::epsilon();
  constexpr double nothing = 1e-200;
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (Size p = 0; p < n; ++p) {
      for (Size q = p + 1; q < n; ++q) {
        const double of_p = x.col(p).squaredNorm(), of_q = x.col(q).squaredNorm();
        const double both = x.col(p).dot(x.col(q));
        // What is left of a column that was a multiple of others is 0: turning it on would make it
        // smaller each time, until its square is no number.
        if (of_p < nothing || of_q < nothing) {
          (of_p < nothing ? x.col(p) : x.col(q)).setZero();
          continue;
        }
        if (!(std::abs(both) > bound * std::sqrt(of_p) * std::sqrt(of_q))) continue;
        const double zeta = (of_q - of_p) / (2 * both);
        const double tangent = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        for (Matrix* columns : {&x, &y}) {
          double *first = columns->col(p).data(), *second = columns->col(q).data();
          for (Size i = 0; i < columns->rows(); ++i) {
            const double before = first[i];
            first[i] = cosine * before - sine * second[i];
            second[i] = sine * before + cosine * second[i];
          }
        }
        turned = true;
      }
    }
    if (!turned) return true;
  }
  return false;
}

// Which column is longest, and so on.
std::vector<Size> by_length(const Matrix& x) {
  std::vector<Size> order(static_cast<std::size_t>(x.cols()));
  std::iota(order.begin(), order.end(), Size{0});
  const Eigen::VectorXd lengths = x.colwise().norm();
  std::stable_sort(order.begin(), order.end(),
                   [&](Size a, Size b) { return lengths(a) > lengths(b); });
  return order;
}

bool singular(const Factors& lu) { return (lu.matrixLU().diagonal().array() == 0).any(); }

}  // namespace

bool invert(double* inverse, const double* a, Size n) {
  const OneThread guard;
  if (n == 0) return true;
  const Factors lu(read(a, n, n));
  if (singular(lu)) return false;
  at(inverse, n, n) = lu.solve(Matrix::Identity(n, n));
  return true;
}

bool solve(double* x, const double* a, bool transposed, const double* b, Size n, Size k) {
  const OneThread guard;
  if (n == 0 || k == 0) return true;
  const Matrix factored = read(a, n, n), right = read(b, n, k);
  const Factors lu(transposed ? Matrix(factored.transpose()) : factored);
  if (singular(lu)) return false;
  at(x, n, k) = lu.solve(right);
  return true;
}

void log_determinant(double* sign, double* log, const double* a, Size n) {
  const OneThread guard;
  *sign = 1;
  *log = 0;
  if (n == 0) return;
  const Factors lu(read(a, n, n));
  *sign = lu.permutationP().determinant();
  for (Size i = 0; i < n; ++i) {
    const double pivot = lu.matrixLU()(i, i);
    *sign = std::isnan(pivot) ? pivot : pivot == 0 ? 0 : pivot < 0 ? -*sign : *sign;
    *log += std::log(std::abs(pivot));
  }
}

double determinant(const double* a, Size n) {
  const OneThread guard;
  return n == 0 ? 1 : Factors(read(a, n, n)).determinant();
}

void cofactors(double* gradient, const double* a, Size n) {
  const OneThread guard;
  if (n == 0) return;
  const Matrix matrix = read(a, n, n);
  const Factors lu(matrix);
  Matrix upper = lu.matrixLU().triangularView<Eigen::Upper>();
  // Of the nearest matrix that is not singular, whose cofactors are as near.
  const double least =
      std::numeric_limits<double>::epsilon() * std::max(matrix.cwiseAbs().maxCoeff(), 1e-16);
  for (Size i = 0; i < n; ++i) {
    if (upper(i, i) == 0) upper(i, i) = least;
  }
  const double determinant = upper.diagonal().prod() * lu.permutationP().determinant();
  Matrix inverse = lu.permutationP() * Matrix::Identity(n, n);
  lu.matrixLU().triangularView<Eigen::UnitLower>().solveInPlace(inverse);
  upper.triangularView<Eigen::Upper>().solveInPlace(inverse);
  at(gradient, n, n) = determinant * inverse.transpose();
}

bool solve_triangular(double* x, const double* a, Triangle triangle, const double* b, Size n,
                      Size k) {
  std::copy_n(b, n * k, x);
  const auto element = [&](Size i, Size j) {
    return triangle.transposed ? a[j * n + i] : a[i * n + j];
  };
  const bool downwards = triangle.upper == triangle.transposed;
  for (Size done = 0; done < n; ++done) {
    const Size i = downwards ? done : n - 1 - done;
    double* row = x + i * k;
    for (Size j = downwards ? 0 : i + 1; j < (downwards ? i : n); ++j) {
      const double factor = element(i, j);
      for (Size c = 0; c < k; ++c) row[c] -= factor * x[j * k + c];
    }
    if (triangle.unit) continue;
    const double pivot = element(i, i);
    if (pivot == 0) return false;
    for (Size c = 0; c < k; ++c) row[c] /= pivot;
  }
  return true;
}

Size cholesky(double* l, const double* a, Size n) {
  std::fill_n(l, n * n, 0.0);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j <= i; ++j) {
      double left = a[i * n + j];
      for (Size p = 0; p < j; ++p) left -= l[i * n + p] * l[j * n + p];
      if (i == j && !(left > 0)) return i + 1;
      l[i * n + j] = i == j ? std::sqrt(left) : left / l[j * n + j];
    }
  }
  return 0;
}

void qr(double* q, double* r, const double* a, Size m, Size n, Size k) {
  const OneThread guard;
  if (m == 0 || n == 0) {
    if (m > 0 && k > 0) at(q, m, k).setIdentity();
    return;
  }
  const Eigen::HouseholderQR<Matrix> factors(read(a, m, n));
  const Matrix full = factors.householderQ() * Matrix::Identity(m, k);
  at(q, m, k) = full;
  const Matrix upper = factors.matrixQR().triangularView<Eigen::Upper>();
  at(r, k, n) = upper.topRows(k);
}

bool svd(double* u, double* s, double* vh, const double* a, Size m, Size n) {
  const OneThread guard;
  const Size k = std::min(m, n);
  if (k == 0) return true;
  const Matrix matrix = read(a, m, n);
  if (!matrix.allFinite()) return false;
  // Of the triangle r [k, k] of the higher one of a and a^T: r = x diag(s) y^T.
  // Scaled, so that no square is past f64.
  const double largest = matrix.cwiseAbs().maxCoeff(), scale = largest > 0 ? largest : 1;
  const Eigen::HouseholderQR<Matrix> factors((m >= n ? matrix : Matrix(matrix.transpose())) /
                                             scale);
  Matrix x = factors.matrixQR().topRows(k).triangularView<Eigen::Upper>();
  Matrix y = Matrix::Identity(k, k);
  if (!make_orthogonal(x, y)) return false;
  const std::vector<Size> order = by_length(x);
  Matrix left = Matrix::Zero(std::max(m, n), k), right(k, k);
  Size rank = 0;
  for (Size i = 0; i < k; ++i) {
    const auto from = order[static_cast<std::size_t>(i)];
    const double length = x.col(from).norm();
    s[i] = length * scale;
    right.col(i) = y.col(from);
    if (length > 0) left.col(rank++).head(k) = x.col(from) / length;
  }
  // Any columns that are orthogonal to these, where s is 0.
  if (rank == 0) {
    left.topRows(k).setIdentity();
  } else if (rank < k) {
    const Eigen::HouseholderQR<Matrix> known(Matrix(left.topLeftCorner(k, rank)));
    const Matrix all = known.householderQ() * Matrix::Identity(k, k);
    left.topRightCorner(k, k - rank) = all.rightCols(k - rank);
  }
  left = factors.householderQ() * left;
  at(u, m, k) = m >= n ? left : right;
  at(vh, k, n) = (m >= n ? right : left).transpose();
  return true;
}

bool eigh(double* w, double* v, const double* a, Size n) {
  const OneThread guard;
  if (n == 0) return true;
  const Matrix matrix = read(a, n, n).triangularView<Eigen::Lower>();
  if (!matrix.allFinite()) {
    std::fill_n(w, n, std::numeric_limits<double>::quiet_NaN());
    std::fill_n(v, n * n, std::numeric_limits<double>::quiet_NaN());
    return true;
  }
  const Eigen::SelfAdjointEigenSolver<Matrix> factors(matrix);
  if (factors.info() != Eigen::Success) return false;
  at(w, n, 1) = factors.eigenvalues();
  at(v, n, n) = factors.eigenvectors();
  return true;
}

}  // namespace peal::factorize
