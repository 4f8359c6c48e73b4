// Random numbers of the kernels: Philox4x32-10, counter = (fit, index, purpose), so that a number depends on the fit alone.

__device__ __forceinline__ void philox(unsigned long long seed, unsigned long long fit, unsigned int index,
                                       unsigned int purpose, unsigned int out[4]) {
    unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
    unsigned int c0 = (unsigned int)fit, c1 = (unsigned int)(fit >> 32), c2 = index, c3 = purpose;
#pragma unroll
    for (int r = 0; r < 10; ++r) {
        unsigned int h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        unsigned int h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

__device__ __forceinline__ double open_unit(unsigned int high, unsigned int low) {  // uniform on (0, 1), 53 bits
    unsigned long long bits = ((unsigned long long)high << 21) ^ (unsigned long long)(low >> 11);
    return ((double)(bits & 0x1FFFFFFFFFFFFFull) + 0.5) * (1.0 / 9007199254740992.0);
}

__device__ __forceinline__ void uniform2(unsigned long long seed, unsigned long long fit, unsigned int index,
                                         unsigned int purpose, double *u, double *v) {
    unsigned int r[4];
    philox(seed, fit, index, purpose, r);
    *u = open_unit(r[0], r[1]);
    *v = open_unit(r[2], r[3]);
}

__device__ __forceinline__ void normal2(unsigned long long seed, unsigned long long fit, unsigned int index,
                                        unsigned int purpose, double *x, double *y) {
    double u, v, s, c;
    uniform2(seed, fit, index, purpose, &u, &v);
    double r = sqrt(-2.0 * log(u));
    sincospi(2.0 * v, &s, &c);
    *x = r * c;
    *y = r * s;
}

enum Purpose { NORMALS = 0, OUTPUT = 1, CHI = 2 };

// Chi-square with df degrees of freedom by Marsaglia and Tsang, two attempts a round; `which` numbers it in its fit.
__device__ double chi_square(double df, unsigned long long seed, unsigned long long fit, unsigned int which) {
    double shape = 0.5 * df, boost = 1.0;
    unsigned int purpose = CHI + 2 * which;
    if (shape < 1.0) {
        double u, v;
        uniform2(seed, fit, 0xFFFFFFFFu, purpose, &u, &v);
        boost = pow(u, 1.0 / shape);
        shape += 1.0;
    }
    double b = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * b);
    for (unsigned int round = 0;; ++round) {
        double x[2], u[2];
        normal2(seed, fit, round, purpose, &x[0], &x[1]);
        uniform2(seed, fit, round, purpose + 1, &u[0], &u[1]);
        for (int k = 0; k < 2; ++k) {
            double v = 1.0 + c * x[k];
            if (v <= 0.0) continue;
            v = v * v * v;
            if (log(u[k]) < 0.5 * x[k] * x[k] + b * (1.0 - v + log(v))) return 2.0 * b * v * boost;
        }
    }
}
