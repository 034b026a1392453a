// The cumulative normal distribution, by Abramowitz and Stegun's formula 26.2.17: within 7.5e-8.
float cumulative_normal(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabs(d));
  const float polynomial =
      k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  const float tail = 0.39894228040143267794f * exp(-0.5f * d * d) * polynomial;
  return d > 0.0f ? 1.0f - tail : tail;
}

// European options: what the right to buy and the right to sell are worth.
kernel void price_options(global const float* stocks, global const float* strikes, global const float* years,
                          global float* calls, global float* puts, float rate, float volatility) {
  const uint index = get_global_id(0);
  const float stock = stocks[index];
  const float strike = strikes[index];
  const float time = years[index];
  const float deviation = volatility * sqrt(time);
  const float d1 = (log(stock / strike) + (rate + 0.5f * volatility * volatility) * time) / deviation;
  const float d2 = d1 - deviation;
  const float n1 = cumulative_normal(d1);
  const float n2 = cumulative_normal(d2);
  const float strike_today = strike * exp(-rate * time);
  calls[index] = stock * n1 - strike_today * n2;
  puts[index] = strike_today * (1.0f - n2) - stock * (1.0f - n1);
}
