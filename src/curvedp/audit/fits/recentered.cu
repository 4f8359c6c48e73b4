// Recentered fits (P-9), fused: one thread runs one fit of the default mechanism and adds up the log-likelihood ratio
// of everything it releases. Follows random.cuh and, made by Python, D columns, R distinct records, and a name P_mu for
// each of the public numbers of a plan.

#define PART __device__ __noinline__  // inlined, all of this takes minutes to compile
#define EDGES 13
#define SIZES 33

struct Table {
    const double *x, *y;          // R rows of D; R
    const double *counts[2];      // of the two tables
    const double *low, *high;     // bounds of phi'(s; y) = clip(s - y); null: logistic
};

struct Looks {                    // tables of `Looks` in recentered.py
    const double *edges, *sizes, *cells, *squares, *priors;
};

struct Outputs {
    double *theta, *trace;        // rows of D; rows of 8: ratio, count, bound, resolved, spread, typical, clip, kept
    unsigned long long *ratio_counts, *theta_counts;
    const double *direction;
    double ratio_low, ratio_inverse, theta_low, theta_inverse;
    int ratio_bins, theta_bins;
};

__device__ __forceinline__ int cell_of(double value, double low, double inverse, int bins) {  // NaN: the last cell
    double position = floor((value - low) * inverse);
    if (!(position < (double)bins)) return bins - 1;
    return position < 0.0 ? 0 : (int)position;
}

struct Stream {                   // the normals of one fit
    unsigned long long seed, fit;
    unsigned int pair;
    double spare;
    bool have;
    __device__ double normal() {
        if (have) {
            have = false;
            return spare;
        }
        double x;
        normal2(seed, fit, pair++, NORMALS, &x, &spare);
        have = true;
        return x;
    }
};

__device__ __forceinline__ double norm2(const double *v) {
    double total = 0.0;
    for (int i = 0; i < D; ++i) total += v[i] * v[i];
    return total;
}

__device__ __forceinline__ double slope_of(const Table &t, int r, double margin) {
    if (!t.low) return -t.y[r] / (1.0 + exp(t.y[r] * margin));
    return fmin(fmax(margin - t.y[r], t.low[r]), t.high[r]);
}

// Cyclic Jacobi: S becomes diagonal, the columns of V its eigenvectors.
PART void eigen(double S[D][D], double V[D][D]) {
    for (int i = 0; i < D; ++i)
        for (int j = 0; j < D; ++j) V[i][j] = i == j ? 1.0 : 0.0;
    for (int sweep = 0; sweep < (D == 2 ? 1 : 12) && D > 1; ++sweep) {
        double off = 0.0, diagonal = 0.0;
        for (int i = 0; i < D; ++i) {
            diagonal += S[i][i] * S[i][i];
            for (int j = 0; j < i; ++j) off += S[i][j] * S[i][j];
        }
        if (off <= 1e-32 * diagonal) break;
        for (int p = 0; p < D - 1; ++p)
            for (int q = p + 1; q < D; ++q) {
                double b = S[p][q];
                if (b == 0.0) continue;
                double h = 0.5 * (S[q][q] - S[p][p]) / b;
                double t = (h >= 0.0 ? 1.0 : -1.0) / (fabs(h) + sqrt(h * h + 1.0));
                double c = rsqrt(t * t + 1.0), s = t * c;
                for (int k = 0; k < D; ++k) {
                    double a = S[k][p], e = S[k][q];
                    S[k][p] = c * a - s * e;
                    S[k][q] = s * a + c * e;
                }
                for (int k = 0; k < D; ++k) {
                    double a = S[p][k], e = S[q][k];
                    S[p][k] = c * a - s * e;
                    S[q][k] = s * a + c * e;
                    double v = V[k][p], w = V[k][q];
                    V[k][p] = c * v - s * w;
                    V[k][q] = s * v + c * w;
                }
            }
    }
}

PART double log_det(const double W[D][D]) {  // NaN where W is not positive definite
    double L[D][D], total = 0.0;
    for (int j = 0; j < D; ++j) {
        double pivot = W[j][j];
        for (int k = 0; k < j; ++k) pivot -= L[j][k] * L[j][k];
        if (!(pivot > 0.0)) return nan("");
        L[j][j] = sqrt(pivot);
        total += log(pivot);
        for (int i = j + 1; i < D; ++i) {
            double e = W[i][j];
            for (int k = 0; k < j; ++k) e -= L[i][k] * L[j][k];
            L[i][j] = e / L[j][j];
        }
    }
    return total;
}

struct Fit {
    const Table &table;
    const Looks &looks;
    int side;
    Stream stream;
    double ratio, n, d_change[R];
    double u[R][D], lengths[R];   // records in the present metric

    __device__ double multiplicity(int r) const { return table.counts[side][r]; }

    // One number q + sigma z whose query moves by `moved` from one table to the other.
    PART double release(double asked, double moved, double inverse_sigma, double sigma) {
        double z = stream.normal(), shift = moved * inverse_sigma;
        ratio += shift * ((side - 0.5) * shift + z);
        return asked + sigma * z;
    }

    __device__ void measure() {
        for (int r = 0; r < R; ++r) lengths[r] = sqrt(norm2(u[r]));
    }

    // Noisy counts of sizes in the cells (.., largest * ladder[e]].
    PART void histogram(const double *sizes, double largest, const double *ladder, double mu, double *counts) {
        double asked[EDGES + 1], moved[EDGES + 1];
        for (int c = 0; c <= EDGES; ++c) asked[c] = moved[c] = 0.0;
        for (int r = 0; r < R; ++r) {
            int c = 0;
            while (c < EDGES && sizes[r] > largest * ladder[c]) ++c;
            asked[c] += multiplicity(r);
            moved[c] += d_change[r];
        }
        double sigma = P_histogram_factor / mu, inverse = mu / P_histogram_factor;
        for (int c = 0; c <= EDGES; ++c) counts[c] = release(asked[c], moved[c], inverse, sigma);
    }

    // The root mean square of the sizes, as `released.scales.typical_length` finds it.
    PART double typical(const double *sizes, double guess, double rows, double mu, int prior) {
        double largest = P_widest_clip * guess, counts[EDGES + 1], fit[SIZES], best = -1e308;
        histogram(sizes, largest, looks.edges, mu, counts);
        double deviation = P_histogram_factor / mu, misfit = 0.1 * rows;
        double weight = 1.0 / (deviation * deviation + misfit * misfit);
        for (int j = 0; j < SIZES; ++j) {
            double dot = 0.0;
            for (int c = 0; c <= EDGES; ++c) dot += counts[c] * looks.cells[j * (EDGES + 1) + c];
            fit[j] = rows * (dot - 0.5 * rows * looks.squares[j]) * weight + looks.priors[prior * SIZES + j];
            best = fmax(best, fit[j]);
        }
        double total = 0.0, mean = 0.0;
        for (int j = 0; j < SIZES; ++j) {
            double w = exp(fit[j] - best);
            total += w;
            mean += w * looks.sizes[j];
        }
        return largest * exp2(mean / total);
    }

    __device__ void count() {
        if (P_public_count > 0.0) {
            n = 0.0;
            for (int r = 0; r < R; ++r) n += table.counts[0][r];
            n = fmax(n, 1.0);
            return;
        }
        double asked = 0.0, moved = 0.0;
        for (int r = 0; r < R; ++r) {
            asked += multiplicity(r);
            moved += d_change[r];
        }
        n = fmax(release(asked, moved, P_mu_count, 1.0 / P_mu_count), fmax(1.0 / P_mu_count, 1.0));
    }

    // The pilot's metric, or none: A, and the bound of lengths in it. u becomes Ax.
    PART double pilot(const double *ladder, double A[D][D]) {
        double G[D][D], V[D][D];
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < D; ++i) u[r][i] = table.x[r * D + i];
        if (n * P_mu / D >= P_precise) {
            for (int i = 0; i < D; ++i)
                for (int j = 0; j < D; ++j) A[i][j] = i == j ? 1.0 : 0.0;
            measure();
            return P_x_norm;
        }
        double sigma = P_gram_factor * P_x_norm * P_x_norm / P_mu_pilot;
        for (int i = 0; i < D; ++i)
            for (int j = 0; j <= i; ++j) {
                double asked = 0.0, moved = 0.0, scale = i == j ? sigma : sigma * 0.70710678118654752;
                for (int r = 0; r < R; ++r) {
                    asked += multiplicity(r) * u[r][i] * u[r][j];
                    moved += d_change[r] * u[r][i] * u[r][j];
                }
                G[i][j] = G[j][i] = release(asked, moved, 1.0 / scale, scale);
            }
        eigen(G, V);
        double ceiling = n * P_x_norm * P_x_norm, lift = fmin(P_floor * sigma * sqrt(2.0 * D), ceiling), least = 1e308;
        for (int i = 0; i < D; ++i) {
            double value = fmin(fmax(G[i][i], 0.0), ceiling) + lift;
            least = fmin(least, value);
            for (int j = 0; j < D; ++j) A[i][j] = V[j][i] * rsqrt(value);
        }
        transform(A);
        double largest = P_x_norm * rsqrt(least), counts[EDGES + 1];
        histogram(lengths, largest, ladder, P_mu_lengths, counts);
        double beyond = 0.0, bound = largest, slack = P_histogram_factor / P_mu_lengths;
        for (int e = EDGES - 1; e >= 0; --e) {
            beyond += counts[e + 1];
            if (fmax(beyond, 0.0) + slack * sqrt((double)(EDGES - e)) <= (1.0 - P_kept_lengths) * n)
                bound = largest * ladder[e];
        }
        return bound;
    }

    PART void transform(const double A[D][D]) {  // u := A u
        for (int r = 0; r < R; ++r) {
            double v[D];
            for (int i = 0; i < D; ++i) {
                v[i] = 0.0;
                for (int j = 0; j < D; ++j) v[i] += A[i][j] * u[r][j];
            }
            for (int i = 0; i < D; ++i) u[r][i] = v[i];
        }
        measure();
    }

    // S with Wishart noise, and its metric: A becomes the metric, u the records in it. Returns `resolved`.
    PART double curvature(double A[D][D], double bound) {
        double scale = bound * bound * P_sigma2, W[D][D], other[D][D], S[D][D], V[D][D], trace = 0.0;
        for (int i = 0; i < D; ++i)
            for (int j = 0; j < D; ++j) W[i][j] = 0.0;
        for (int j = 0; j < D; ++j) {  // W += c c', c column j of the Bartlett factor
            double c[D];
            c[j] = sqrt(chi_square(P_m - j, stream.seed, stream.fit, j));
            for (int i = j + 1; i < D; ++i) c[i] = stream.normal();
            for (int i = j; i < D; ++i)
                for (int k = j; k < D; ++k) W[i][k] += c[i] * c[k];
        }
        for (int i = 0; i < D; ++i)
            for (int j = 0; j < D; ++j) {
                double asked = 0.0, moved = 0.0;
                for (int r = 0; r < R; ++r) {
                    double f = fmin(1.0, bound / fmax(lengths[r], 1e-300));
                    double part = f * f * u[r][i] * u[r][j];
                    asked += multiplicity(r) * part;
                    moved += d_change[r] * part;
                }
                S[i][j] = asked + scale * (W[i][j] - (i == j ? P_m : 0.0));
                double shift = (side ? moved : -moved) / scale;
                other[i][j] = W[i][j] + shift;
                if (i == j) trace += shift;
            }
        double there = log_det(other), gain = 0.5 * (P_m - D - 1) * (there - log_det(W)) - 0.5 * trace;
        if (isnan(there)) gain = -1e308;
        ratio += side ? -gain : gain;
        eigen(S, V);
        double norm = 2.0 * scale * sqrt(P_m * D), ceiling = n * bound * bound, lift = fmin(P_floor * norm, ceiling);
        double total = 0.0, weak = 0.0, inverse = 0.0, next[D][D];
        int below = 0;
        for (int i = 0; i < D; ++i) {
            double s = S[i][i], lifted = fmin(fmax(s, 0.0), ceiling) + lift;
            if (s > norm) {
                total += s / lifted;
            } else {
                weak += s;
                inverse += 1.0 / lifted;
                ++below;
            }
            for (int j = 0; j < D; ++j) next[i][j] = V[j][i] * rsqrt(lifted);
        }
        if (below) total += weak * inverse / below;
        transform(next);
        double product[D][D];
        for (int i = 0; i < D; ++i)
            for (int j = 0; j < D; ++j) {
                product[i][j] = 0.0;
                for (int k = 0; k < D; ++k) product[i][j] += next[i][k] * A[k][j];
            }
        for (int i = 0; i < D; ++i)
            for (int j = 0; j < D; ++j) A[i][j] = product[i][j];
        return fmin(fmax(total, 0.5), (double)D);
    }

    __device__ double margin(int r, const double *phi) const {
        double s = 0.0;
        for (int i = 0; i < D; ++i) s += u[r][i] * phi[i];
        return s;
    }

    // Rounds with a shift of mu together. `power` < 0: only phi moves; else it becomes the last Newton step of the mean.
    PART void walk(double *phi, double clip, double kept_now, double rounds, double step, double mu, double most,
                         double spread, double power) {
        double way = fmin(P_travel * n * mu / P_sum_factor / spread, most), b = P_beta * kept_now;
        double drift = fmin(fmax(1.0 - step * rounds / way, 0.0), P_momentum), damping = fmin(step, way / rounds) / b;
        double sigma = P_sum_factor * clip * sqrt(rounds) / mu, inverse_sigma = 1.0 / sigma, total = 0.0;
        double last[D], mean_centre[D], mean_gradient[D];
        for (int i = 0; i < D; ++i) {
            last[i] = phi[i];
            mean_centre[i] = mean_gradient[i] = 0.0;
        }
        for (int turn = 1; turn <= (int)rounds; ++turn) {
            double centre[D], asked[D], moved[D], uphill = 0.0;
            for (int i = 0; i < D; ++i) {
                centre[i] = phi[i] + drift * (phi[i] - last[i]);
                asked[i] = moved[i] = 0.0;
            }
            for (int r = 0; r < R; ++r) {
                double slope = slope_of(table, r, margin(r, centre)), length = lengths[r] * fabs(slope);
                if (length > clip) slope *= clip / length;
                for (int i = 0; i < D; ++i) {
                    asked[i] += multiplicity(r) * slope * u[r][i];
                    moved[i] += d_change[r] * slope * u[r][i];
                }
            }
            double weight = power < 0.0 ? 0.0 : pow(turn / rounds, power);
            total += weight;
            for (int i = 0; i < D; ++i) {
                double gradient = release(asked[i], moved[i], inverse_sigma, sigma), next = centre[i] - damping * gradient;
                uphill += gradient * (next - phi[i]);
                mean_centre[i] += weight * centre[i];
                mean_gradient[i] += weight * gradient;
                last[i] = phi[i];
                phi[i] = next;
            }
            if (uphill > 0.0)
                for (int i = 0; i < D; ++i) last[i] = phi[i];
        }
        if (power >= 0.0)
            for (int i = 0; i < D; ++i) phi[i] = (mean_centre[i] - mean_gradient[i] / b) / total;
    }

    PART void choose_clip(const double *phi, const double *ladder, double size, double *clip, double *share) {
        double sizes[R], counts[EDGES + 1], largest = P_widest_clip * size, scale = P_histogram_factor / P_mu_clip;
        for (int r = 0; r < R; ++r) sizes[r] = lengths[r] * fabs(slope_of(table, r, margin(r, phi)));
        histogram(sizes, largest, ladder, P_mu_clip, counts);
        if (scale * sqrt(EDGES / 2.0) > n / 3.0) {
            *clip = P_first_clip * size;
            *share = P_first_kept;
            return;
        }
        double few = P_clipped * D * P_sum_factor / P_mu, running = 0.0, outside = fmax(counts[EDGES], 0.0);
        int index = EDGES - 1;
        for (int e = EDGES - 1; e >= 0; --e) {
            running += counts[e + 1];
            double beyond = fmax(running, 0.0);
            if (beyond - P_doubt * scale * sqrt((double)(EDGES - e)) <= few && beyond <= (1.0 - P_kept) * n) {
                index = e;
                outside = beyond;
            }
        }
        *clip = largest * ladder[index];
        *share = fmin(fmax(1.0 - outside / n, P_kept), 1.0);
    }

    __device__ void run(const double *ladder, double *theta, double *trace) {
        double A[D][D], sizes[R], phi[D];
        ratio = 0.0;
        for (int r = 0; r < R; ++r) d_change[r] = table.counts[1][r] - table.counts[0][r];
        count();
        double kappa = n * P_mu / D, bound = pilot(ladder, A), resolved = curvature(A, bound);
        double length = typical(lengths, sqrt(resolved / n), fmax(n, 1.0), P_mu_spread, 0);
        double spread = fmin(n * length * length, (double)D);
        for (int r = 0; r < R; ++r) sizes[r] = lengths[r] * fabs(slope_of(table, r, 0.0));
        double size = typical(sizes, P_slope * sqrt(spread / n), n, P_mu_scale, 1);
        bool quick = kappa >= P_plenty && P_rounds > P_quick_rounds;
        double all = quick ? P_quick_rounds : P_rounds, first = quick ? P_quick_first_rounds : P_first_rounds;
        double step = quick ? P_quick_step : P_step, clip, share;
        for (int i = 0; i < D; ++i) phi[i] = 0.0;
        walk(phi, P_first_clip * size, P_first_kept, first, step, P_mu_first, P_first_travel, spread, -1.0);
        choose_clip(phi, ladder, size, &clip, &share);
        walk(phi, clip, share, all - first, step, P_mu_later, 1e308, spread, P_weight * (1.0 + kappa / P_large));
        for (int i = 0; i < D; ++i) {
            theta[i] = 0.0;
            for (int j = 0; j < D; ++j) theta[i] += A[j][i] * phi[j];
        }
        if (trace) {
            double values[8] = {ratio, n, bound, resolved, spread, size, clip, share};
            for (int k = 0; k < 8; ++k) trace[k] = values[k];
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
recentered(const double *x, const double *y, const double *counts, const double *low, const double *high,
           const double *tables, int side, unsigned long long seed, unsigned long long first,
           unsigned long long count, double *theta, double *trace, unsigned long long *ratio_counts,
           unsigned long long *theta_counts, const double *direction, double ratio_low, double ratio_inverse,
           int ratio_bins, double theta_low, double theta_inverse, int theta_bins) {
    __shared__ double ladder[EDGES];
    for (int e = threadIdx.x; e < EDGES; e += blockDim.x) ladder[e] = exp2(0.5 * (e - (EDGES - 1)));
    __syncthreads();
    const Table table{x, y, {counts, counts + R}, low, high};
    const Looks looks{tables, tables + EDGES, tables + EDGES + SIZES, tables + EDGES + SIZES * (EDGES + 2),
                      tables + EDGES + SIZES * (EDGES + 3)};
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long f = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; f < count; f += stride) {
        double out[D], row[8];
        Fit fit{table, looks, side, Stream{seed, first + f, 0, 0.0, false}};
        fit.run(ladder, out, row);
        if (theta)
            for (int i = 0; i < D; ++i) theta[f * D + i] = out[i];
        if (trace)
            for (int k = 0; k < 8; ++k) trace[f * 8 + k] = row[k];
        if (ratio_counts) {
            double score = 0.0;
            for (int i = 0; i < D; ++i) score += direction[i] * out[i];
            atomicAdd(&ratio_counts[cell_of(row[0], ratio_low, ratio_inverse, ratio_bins)], 1ull);
            atomicAdd(&theta_counts[cell_of(score, theta_low, theta_inverse, theta_bins)], 1ull);
        }
    }
}
