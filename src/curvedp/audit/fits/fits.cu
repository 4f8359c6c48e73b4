// Private fits of a quadratic, fused: draw W by Bartlett and a, factor S = base + sigma2*W, solve, score, count.
// Follows random.cuh.

struct Form {                  // u'(base + sigma2 W)u/2 - (linear - sigma0 z)'u, scored by direction'(center + u)
    const double *base;        // d rows of d
    const double *linear;
    const double *direction;
    const double *center;
    double sigma2, m, sigma0, output_noise;
};

struct Task {
    unsigned long long seed, first, count;  // fits first .. first+count-1
    const double *factor, *normal;          // given draws, or null: then they are drawn
    double *theta;                          // count rows of d, or null
    unsigned long long *histogram;          // bins, or null
    double low, inverse_width;
    int bins;
};

__device__ __forceinline__ int cell(const Task &task, double score) {  // NaN goes to the last cell
    double position = floor((score - task.low) * task.inverse_width);
    if (!(position < (double)task.bins)) return task.bins - 1;
    return position < 0.0 ? 0 : (int)position;
}

// One thread per fit: the matrix lives in registers, so D is a compile-time constant.
template <int D>
__device__ __forceinline__ void small_fits(const Form &form, const Task &task, unsigned int *counts) {
    for (int b = threadIdx.x; task.histogram && b < task.bins; b += blockDim.x) counts[b] = 0;
    __syncthreads();
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long f = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; f < task.count; f += stride) {
        const unsigned long long fit = task.first + f;
        double S[D * (D + 1) / 2], u[D], spare = 0.0;
        unsigned int pair = 0;
        bool have = false;
        auto normal = [&]() {
            have = !have;
            if (!have) return spare;
            double x;
            normal2(task.seed, fit, pair++, NORMALS, &x, &spare);
            return x;
        };
#pragma unroll
        for (int i = 0; i < D; ++i)
#pragma unroll
            for (int k = 0; k <= i; ++k) S[i * (i + 1) / 2 + k] = form.base[i * D + k];
        if (form.sigma2 > 0.0) {
#pragma unroll
            for (int j = 0; j < D; ++j) {  // S += sigma2 c c', c column j of the Bartlett factor
                double c[D];
                c[j] = task.factor ? task.factor[(f * D + j) * D + j] : sqrt(chi_square(form.m - j, task.seed, fit, j));
#pragma unroll
                for (int i = j + 1; i < D; ++i) c[i] = task.factor ? task.factor[(f * D + i) * D + j] : normal();
#pragma unroll
                for (int i = j; i < D; ++i)
#pragma unroll
                    for (int k = j; k <= i; ++k) S[i * (i + 1) / 2 + k] += form.sigma2 * c[i] * c[k];
            }
        }
#pragma unroll
        for (int i = 0; i < D; ++i) u[i] = form.linear[i] - form.sigma0 * (task.normal ? task.normal[f * D + i] : normal());
        // Cholesky by columns (diagonal inverted), forward and backward substitution.
#pragma unroll
        for (int j = 0; j < D; ++j) {
            double pivot = rsqrt(S[j * (j + 1) / 2 + j]);  // NaN when S is not positive definite
            S[j * (j + 1) / 2 + j] = pivot;
#pragma unroll
            for (int i = j + 1; i < D; ++i) S[i * (i + 1) / 2 + j] *= pivot;
#pragma unroll
            for (int i = j + 1; i < D; ++i)
#pragma unroll
                for (int k = j + 1; k <= i; ++k) S[i * (i + 1) / 2 + k] -= S[i * (i + 1) / 2 + j] * S[k * (k + 1) / 2 + j];
            u[j] *= pivot;
#pragma unroll
            for (int i = j + 1; i < D; ++i) u[i] -= S[i * (i + 1) / 2 + j] * u[j];
        }
        double score = 0.0;
#pragma unroll
        for (int j = D - 1; j >= 0; --j) {
            u[j] *= S[j * (j + 1) / 2 + j];
#pragma unroll
            for (int k = 0; k < j; ++k) u[k] -= S[j * (j + 1) / 2 + k] * u[j];
            score += form.direction[j] * (u[j] + form.center[j]);
        }
        if (task.theta)
            for (int i = 0; i < D; ++i) task.theta[f * D + i] = u[i] + form.center[i];
        if (task.histogram) {
            if (form.output_noise > 0.0) {
                double x, y;
                normal2(task.seed, fit, 0, OUTPUT, &x, &y);
                score += form.output_noise * x;
            }
            atomicAdd(&counts[cell(task, score)], 1u);
        }
    }
    __syncthreads();
    for (int b = threadIdx.x; task.histogram && b < task.bins; b += blockDim.x)
        if (counts[b]) atomicAdd(&task.histogram[b], (unsigned long long)counts[b]);
}

// One block of threads per fit: shared memory holds the Bartlett factor L in the lower triangle of A and, one column
// to the right, the upper triangle of S. Rows are padded to an odd width against bank conflicts. Two more columns,
// v and the direction w, are eliminated along with S: then w'inverse(S)v is the product of the two.
__device__ __forceinline__ void large_fits(int d, const Form &form, const Task &task, double *A) {
    const int width = (d + 3) | 1, tid = threadIdx.x, threads = blockDim.x;
    const int lane = tid & 31, warp = tid >> 5, warps = threads >> 5;
    double *scratch = A + d * width;  // one double per warp
#define S_(j, i) A[(j) * width + (i) + 1]
    for (unsigned long long f = blockIdx.x; f < task.count; f += gridDim.x) {
        const unsigned long long fit = task.first + f;
        const int below = d * (d - 1) / 2, drawn = (form.sigma2 > 0.0 && !task.factor) ? below : 0;
        if (form.sigma2 > 0.0) {
            if (task.factor) {
                for (int e = tid; e < d * d; e += threads)
                    if (e % d <= e / d) A[(e / d) * width + e % d] = task.factor[f * d * d + e];
            } else {
                for (int j = tid; j < d; j += threads) A[j * width + j] = sqrt(chi_square(form.m - j, task.seed, fit, j));
            }
        }
        // Normals in pairs: entry e of L below the diagonal (row major), then z.
        for (int e = 2 * tid; e < drawn + d; e += 2 * threads) {
            double x[2];
            normal2(task.seed, fit, (unsigned int)e / 2, NORMALS, &x[0], &x[1]);
            for (int k = 0; k < 2 && e + k < drawn + d; ++k) {
                int entry = e + k;
                if (entry < drawn) {
                    int i = (int)((1.0f + sqrtf(1.0f + 8.0f * (float)entry)) * 0.5f);
                    while (i * (i - 1) / 2 > entry) --i;
                    while (i * (i + 1) / 2 <= entry) ++i;
                    A[i * width + entry - i * (i - 1) / 2] = x[k];
                } else {
                    int i = entry - drawn;
                    double z = task.normal ? task.normal[f * d + i] : x[k];
                    S_(i, d) = form.linear[i] - form.sigma0 * z;
                    S_(i, d + 1) = form.direction[i];
                }
            }
        }
        __syncthreads();
        for (int i = warp; i < d; i += warps)  // row i of S needs rows i and j <= i of L, and writes right of the diagonal
            for (int j = lane; j <= i; j += 32) {
                double total = 0.0;
                if (form.sigma2 > 0.0)
                    for (int k = 0; k <= j; ++k) total += A[i * width + k] * A[j * width + k];
                S_(j, i) = form.base[i * d + j] + form.sigma2 * total;
            }
        __syncthreads();
        for (int j = 0; j < d; ++j) {  // Cholesky, right looking: column j of the factor in row j; S_jj stays a square
            const double pivot = rsqrt(S_(j, j));  // NaN when S is not positive definite
            for (int i = j + 1 + tid; i < d + 2; i += threads) S_(j, i) *= pivot;
            __syncthreads();
            for (int k = j + 1 + warp; k < d; k += warps) {
                double factor = S_(j, k);
                for (int i = k + lane; i < d + 2; i += 32) S_(k, i) -= factor * S_(j, i);
            }
            __syncthreads();
        }
        if (task.histogram) {
            double part = 0.0;
            for (int i = tid; i < d; i += threads) part += S_(i, d) * S_(i, d + 1) + form.direction[i] * form.center[i];
            for (int o = 16; o; o >>= 1) part += __shfl_down_sync(0xFFFFFFFFu, part, o);
            if (lane == 0) scratch[warp] = part;
            __syncthreads();
            if (tid == 0) {
                double score = 0.0, x, y;
                for (int w = 0; w < warps; ++w) score += scratch[w];
                if (form.output_noise > 0.0) {
                    normal2(task.seed, fit, 0, OUTPUT, &x, &y);
                    score += form.output_noise * x;
                }
                atomicAdd(&task.histogram[cell(task, score)], 1ull);
            }
        }
        if (task.theta) {
            for (int j = d - 1; j >= 0; --j) {  // back substitution by one warp
                if (warp == 0) {
                    double part = 0.0;
                    for (int i = j + 1 + lane; i < d; i += 32) part += S_(j, i) * S_(i, d);
                    for (int o = 16; o; o >>= 1) part += __shfl_down_sync(0xFFFFFFFFu, part, o);
                    if (lane == 0) S_(j, d) = (S_(j, d) - part) * rsqrt(S_(j, j));
                    __syncwarp();
                }
            }
            __syncthreads();
            for (int i = tid; i < d; i += threads) task.theta[f * d + i] = S_(i, d) + form.center[i];
        }
        __syncthreads();
    }
#undef S_
}

#define PARAMETERS                                                                                                   \
    const double *base, const double *linear, const double *direction, const double *center, double sigma2, double m, \
        double sigma0, double output_noise, unsigned long long seed, unsigned long long first,                        \
        unsigned long long count, const double *factor, const double *normal, double *theta,                          \
        unsigned long long *histogram, double low, double inverse_width, int bins
#define FORM Form{base, linear, direction, center, sigma2, m, sigma0, output_noise}
#define TASK Task{seed, first, count, factor, normal, theta, histogram, low, inverse_width, bins}

#ifdef SMALL_D
extern "C" __global__ void __launch_bounds__(THREADS) fits_in_threads(PARAMETERS) {
    extern __shared__ double shared[];
    small_fits<SMALL_D>(FORM, TASK, (unsigned int *)shared);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) fits_in_blocks(PARAMETERS, int d) {
    extern __shared__ double shared[];
    large_fits(d, FORM, TASK, shared);
}
#endif
